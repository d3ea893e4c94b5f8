"""One suite against any number of systems, side by side.

    .venv/bin/python perf/run.py latency --machine cpu-2core --target lazuli-grpc --target sentence-transformers
    .venv/bin/python perf/run.py bulk --machine h200 --target lazuli-grpc --target vllm=http://127.0.0.1:8090

A target is KIND, KIND=ADDRESS, and options after commas (`lazuli-engine,dtype=bfloat16,label=ours`). All get the same
texts (or, with `--send ids`, the same token ids) from the same clients, in turns; before anything is timed, their
vectors and their counts of tokens are compared on every length of the suite. The kinds:

"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from checkpoints.folder import find_checkpoint
from clients.unusable import UnusableError
from comparison.agreement import DisagreementError, check, probes
from comparison.side_by_side import Plan, SideBySide
from comparison.targets import Target, Workshop
from lazuli.checkpoint import load_checkpoint, resolve_checkpoint
from lazuli.config import DEFAULT_CHECKPOINT
from lazuli.errors import ConfigError
from lazuli.launch.errors import LaunchError
from lazuli.launch.options import Dtype
from peers.json_server import end_when_told
from peers.registry import describe_kinds
from peers.spec import Settings, TargetSpec, parse_target
from reporting.measurement import RESULTS, file_name, positive
from suites import cold_start
from suites.contract import Described
from suites.registry import SUITES
from texts.files import read_texts
from texts.rows import row_spec

COLD_START = "cold-start"
_REFERENCE = "sentence-transformers"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one suite; returns the exit status."""
    options = parse(arguments)
    try:
        _run(options)
    except (ValueError, ConfigError, DisagreementError, LaunchError, UnusableError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> None:
    workshop, plan = prepare(options)
    if options.suite == COLD_START:
        cold_start.run(workshop, options.target, plan, options)
    else:
        with workshop.open(options.target) as targets:
            measure(targets, workshop, plan, options)
    print(plan.results / plan.machine / f"{plan.name}.jsonl")


def prepare(options: argparse.Namespace) -> tuple[Workshop, Plan]:
    """What opens the targets, and what holds for the suite; says both."""
    checkpoint = find_checkpoint(options.checkpoint)
    limit = options.max_seq_length or load_checkpoint(checkpoint).max_seq_length
    tokenizer_file = str(resolve_checkpoint(checkpoint) / "tokenizer.json")
    rows = row_spec(tokenizer_file, read_texts(options.texts) if options.texts else [], with_ids=options.send == "ids")
    environment = dict(pair.split("=", 1) for pair in options.env)
    settings = Settings(checkpoint, options.device, options.dtype, options.max_seq_length, environment, options.log)
    workshop = Workshop(settings, rows, options.processes)
    name = options.name or options.suite.replace("-", "_")
    model = options.model or Path(options.checkpoint).name
    turns, warm_up = (1, 0) if options.suite == COLD_START else (options.turns, options.warm_up)
    plan = Plan(options.machine, name, options.results, model, limit, turns, warm_up, options.send)
    _describe(options, plan)
    return workshop, plan


def measure(targets: Sequence[Target], workshop: Workshop, plan: Plan, options: argparse.Namespace) -> None:
    """See that open targets agree, and run one suite of requests against them."""
    suite = SUITES[options.suite]
    _refuse_without_ids(options.send, [target.name for target in targets if not target.peer.takes_ids])
    lengths = [each for each in suite.lengths(options) if each.high <= plan.limit]
    requests = probes(workshop.rows, lengths)
    if options.reference == "first":
        cosines = check(targets, targets[0], requests, options.min_cosine)
        against = targets[0].name
    else:
        # Closed again before anything is timed.
        with workshop.open([TargetSpec(_REFERENCE, None, {"label": "the reference"})]) as (reference,):
            cosines = check(targets, reference, requests, options.min_cosine)
        against = _REFERENCE
    for name, cosine in cosines.items():
        print(f"agrees: {name}, least cosine {cosine:.7f} to {against}", flush=True)
    suite.run(SideBySide(targets, plan, cosines), options)


def _refuse_without_ids(send: str, names: Sequence[str]) -> None:
    if send == "ids" and names:
        raise ValueError(f"{', '.join(names)} cannot be sent token ids: leave --send ids out")


def _describe(options: argparse.Namespace, plan: Plan) -> None:
    kinds = ", ".join(spec.options.get("label") or spec.kind for spec in options.target)
    print(f"{options.suite} of {plan.model}: {kinds}; {plan.sends} are sent")
    if options.suite != COLD_START:
        print(f"warm-up: {plan.warm_up} requests of each client for each target and size; then {plan.turns} turns each")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=f"{__doc__}{describe_kinds()}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    suites = parser.add_subparsers(dest="suite", required=True, metavar="SUITE")
    described: dict[str, Described] = {**SUITES, COLD_START: cold_start}
    for name, suite in described.items():
        about = (suite.__doc__ or "").strip()
        child = suites.add_parser(
            name,
            help=about.splitlines()[0],
            description=f"{about}\n\nTargets:\n{describe_kinds()}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_common(child)
        suite.add_options(child)
    return parser.parse_args(arguments)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--target", type=parse_target, action="append", required=True, metavar="KIND[=ADDRESS][,NAME=VALUE]")
    add("--machine", type=file_name, required=True, help="folder under perf/results")
    add("--name", type=file_name, help="file there; by default that of the suite")
    add("--results", type=Path, default=RESULTS, help="where such folders are")
    add("--checkpoint", default=DEFAULT_CHECKPOINT, help="folder, packaged checkpoint or shape")
    add("--model", help="what to call the checkpoint")
    add("--device", help="of targets that are started here or run in process")
    add("--dtype", choices=[each.value for each in Dtype if each is not Dtype.AUTO], help="likewise")
    add("--max-seq-length", type=positive, help="likewise; by default the checkpoint's own limit")
    add("--send", choices=["texts", "ids"], default="texts", help="what requests carry")
    add("--texts", nargs="+", metavar="FILE", help="real texts (as perf/texts/files.py has them) for ranges of lengths")
    add("--reference", choices=["first", _REFERENCE], default="first", help="what the vectors are compared with")
    add("--min-cosine", type=float, default=0.999, help="below this, nothing is timed")
    add("--turns", type=positive, default=5, help="in which each target's load is made")
    add("--warm-up", type=positive, default=8, help="requests of each client, of each size, before")
    cores = len(os.sched_getaffinity(0))
    add("--processes", type=positive, default=max(1, cores // 2), help="of the load on servers")
    add("--env", nargs="*", default=[], metavar="NAME=VALUE", help="for a Lazuli server that is started here")
    add("--log", type=Path, help="keep the log of a server that is started here")


if __name__ == "__main__":
    end_when_told()
    sys.exit(main())
