"""Where the time of one request to the real server goes, over gRPC and HTTP, and what the load generator can do.

    .venv/bin/python perf/bench_server.py --machine h200 --checkpoint qwen3-0.6b-bidirectional --name server_qwen3

Starts a server of its own unless `--grpc` or `--http` names one. The checkpoint is a folder, a packaged one, or a shape
of `random_checkpoint.py`, which is made with a tokenizer. Suites: `parts` (one request, part by part) and `generator`
(clients that ask for health instead of vectors: no figure of `run.py` can be better). What the server does under loads,
beside other systems, is for `run.py`.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import tokenizers

import lazuli
from breakdown.alone import Alone, measure_alone
from breakdown.parts import measure_parts
from breakdown.server import Target, open_target
from checkpoints.folder import find_checkpoint
from clients.generator import LoadGenerator
from clients.load import Load
from clients.senders import PROTOCOLS
from lazuli.checkpoint import load_checkpoint, resolve_checkpoint
from lazuli.config import DEFAULT_CHECKPOINT
from lazuli.launch.options import Dtype
from peers.lazuli_server import LazuliEndpoint
from reporting.measurement import Measurement, positive, write
from texts.rows import load_tokenizer, row_spec

SUITES = ("parts", "generator")
_SEED = 10**9


class Bench:
    """Collects what is measured on one server."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Wrap the options."""
        self._options = options
        self.measurements: list[Measurement] = []

    def generator(self, protocol: str, target: Target, generator: LoadGenerator) -> None:
        """Clients, asking for health."""
        endpoint = LazuliEndpoint(protocol, target.addresses[protocol])
        for clients in self._options.concurrency:
            result = generator.run(
                Load(endpoint, None, concurrency=clients, seconds=self._options.seconds, settle_s=0.5)
            )
            extra = {
                "load_processes": result.processes,
                "load_core_share": round(result.busiest_core_share, 3),
                "load_gap_ms": round(result.gap_ms, 4),
                "requests_per_s": round(len(result.samples_ms) / result.wall_s, 1),
            }
            about = {"concurrency": clients, "wall_s": result.wall_s, "extra": extra}
            self._note("generator", result.samples_ms, protocol=protocol, texts=None, **about)

    def parts(
        self,
        protocol: str,
        target: Target,
        texts: dict[int, list[str]],
        tokenizer: tokenizers.Tokenizer,
        alone: Alone,
    ) -> None:
        """One request of each length, part by part."""
        for length, pool in texts.items():
            address, repeats = target.addresses[protocol], self._options.repeats
            for part in measure_parts(protocol, address, length, pool, tokenizer, alone, repeats, target.trace):
                note = f"{part.name} ({part.how})"
                self._note("parts", part.samples_ms, protocol=protocol, len=length, texts=None, note=note)

    def _note(self, suite: str, samples: list[float], **fields: object) -> None:
        """Keep and print one measurement."""
        system = f"lazuli {lazuli.__version__}"
        model = (self._options.model or self._options.checkpoint, self._options.dtype or "auto")
        line = Measurement(system, "server", suite, *model, samples, **fields)  # type: ignore[arg-type]
        self.measurements.append(line)
        print(f"{line.summary()} {line.note or ''} {line.extra or ''}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suites."""
    options = _parse(arguments)
    checkpoint = find_checkpoint(options.checkpoint)
    limit = options.max_seq_length or load_checkpoint(checkpoint).max_seq_length
    tokenizer_file = str(resolve_checkpoint(checkpoint) / "tokenizer.json")
    spec = row_spec(tokenizer_file)
    alone, texts = None, {}
    if "parts" in options.suites:
        source = spec.open(_SEED)
        texts = {length: source.words(options.repeats, length) for length in options.parts_len if length <= limit}
        print("measuring engine and tokenizer alone ...", flush=True)
        alone = measure_alone(checkpoint, options.device, options.dtype, texts, options.repeats)
    processes = options.processes or max(1, len(os.sched_getaffinity(0)) // 2)
    bench = Bench(options)
    with open_target(options, checkpoint) as target, LoadGenerator(spec, processes) as generator:
        for suite in options.suites:
            for protocol in target.addresses:
                if suite == "generator":
                    bench.generator(protocol, target, generator)
                elif alone is not None:
                    bench.parts(protocol, target, texts, load_tokenizer(tokenizer_file), alone)
            # After each, so that a run that is cut off leaves what it has.
            path = write(options.machine, options.name, bench.measurements)
    print(path)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--name", default="server", help="file there")
    parser.add_argument("--checkpoint", default=DEFAULT_CHECKPOINT, help="folder, packaged checkpoint or shape")
    parser.add_argument("--model", help="what to call the checkpoint")
    parser.add_argument("--device")
    parser.add_argument("--dtype", choices=[dtype.value for dtype in Dtype if dtype is not Dtype.AUTO])
    parser.add_argument("--max-seq-length", type=positive)
    parser.add_argument("--env", nargs="*", default=[], metavar="NAME=VALUE", help="for the server")
    parser.add_argument("--log", type=Path, help="keep the server's log here")
    parser.add_argument("--grpc", help="host:port of a running server of this checkpoint")
    parser.add_argument("--http", help="host:port of a running server of this checkpoint")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS))
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--concurrency", type=positive, nargs="*", default=[1, 4, 16, 64], help="generator: clients")
    parser.add_argument("--parts-len", type=positive, nargs="+", default=[16, 128, 512], help="tokens of each text")
    parser.add_argument("--repeats", type=positive, default=200, help="requests of each part")
    parser.add_argument("--seconds", type=float, default=5.0, help="generator: of each run")
    parser.add_argument("--processes", type=positive, help="of the load generator; default half the cores")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
