"""NVIDIA's perf_analyzer against a live server, through all combinations of loads.

    .venv/bin/python perf/run_perf_analyzer.py --machine cpu-2core --concurrency 1 4 16
    .venv/bin/python perf/run_perf_analyzer.py --machine cpu-2core --protocols grpc stream --rate 20 50 --len 16
    .venv/bin/python perf/run_perf_analyzer.py --machine cpu-2core --rerank-checkpoint FOLDER

Sends real texts of files, or with `--len` texts of given token lengths, to `embed` over gRPC and HTTP and to
`embed_stream` over a stream; pairs of query and document to a model `rerank` if there is one. Writes what it measured,
with every request's time, as JSON lines. Starts a server of its own unless `--grpc` and `--http` name one.

With `--rate` requests leave on a schedule, whether or not earlier ones are answered. One load that fails is told, and
the others still run; the command then ends with 1.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

import tokenizers

from analyzer.job import PROTOCOLS, Concurrency, Job, Rate, run
from lazuli.checkpoint import resolve_checkpoint
from lazuli.config import DEFAULT_CHECKPOINT
from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from reporting.measurement import RESULTS, Measurement, positive, write
from texts.files import PASSAGES, QUERIES, Fitting, choose_fitting, read_texts
from texts.rows import load_tokenizer
from texts.source import TextSource, single_token_words

_MODELS = {"grpc": "embed", "http": "embed", "stream": "embed_stream"}
# Made-up ones of one length.
_TEXTS = 64


@dataclass(frozen=True)
class Work:
    """One kind of request.

    Attributes:
        model: Name of the model.
        protocol: How it is reached.
        checkpoint: What the model serves.
        inputs: Rows.
        label: Tokens of a text.
        tokens: Tokens of a row on average; None for pairs, which nobody counted.
    """

    model: str
    protocol: str
    checkpoint: str
    inputs: Sequence[Mapping[str, str]]
    label: int | str
    tokens: float | None


def measure(work: Work, address: str, batch: int, load: Concurrency | Rate, seconds: float) -> Measurement:
    """One run of perf_analyzer as a line."""
    result = run(Job(work.model, work.protocol, address, work.inputs, batch, load, seconds))
    is_rate = isinstance(load, Rate)
    return Measurement(
        "lazuli (perf_analyzer)",
        "server",
        f"{'rerank-' if work.model not in _MODELS.values() else ''}{'rate' if is_rate else 'concurrency'}",
        work.checkpoint,
        "auto",
        result.samples_ms,
        len=work.label,
        batch=batch,
        concurrency=None if isinstance(load, Rate) else load.requests,
        protocol=work.protocol,
        texts=batch,
        tokens=round(work.tokens * batch) if work.tokens else None,
        # A closed loop: each of the clients spent the sum of its requests' times.
        wall_s=result.wall_s if isinstance(load, Rate) else sum(result.samples_ms) / 1e3 / load.requests,
        note=f"{load.per_second:g} requests/s, {load.distribution}" if isinstance(load, Rate) else None,
    )


def find_work(options: argparse.Namespace) -> Iterator[Work]:
    """Every kind of request that the options ask for."""
    tokenizer = load_tokenizer(str(resolve_checkpoint(options.checkpoint) / "tokenizer.json"))
    passages = read_texts(options.texts)
    for texts in _made_texts(tokenizer, options.len) if options.len else [passages]:
        fitting = choose_fitting(texts, tokenizer, options.most_tokens)
        print(f"{len(fitting.texts)} texts of {fitting.label} tokens; {fitting.left_out} longer ones are left out")
        tokens = sum(fitting.tokens) / len(fitting.tokens)
        rows = [{"text": text} for text in fitting.texts]
        for protocol in options.protocols:
            yield Work(_MODELS[protocol], protocol, options.checkpoint, rows, fitting.label, tokens)
    if options.rerank_checkpoint or options.rerank_model:
        # A pair has one limit for both, so a document may have half of it.
        documents = choose_fitting(passages, tokenizer, options.most_tokens // 2)
        for protocol in options.protocols:
            if protocol != "stream":
                yield _rerank_work(options, protocol, documents)


def _made_texts(tokenizer: tokenizers.Tokenizer, lengths: Sequence[int]) -> list[list[str]]:
    source = TextSource(*single_token_words(tokenizer), seed=0)
    return [source.texts(_TEXTS, length) for length in lengths]


def _rerank_work(options: argparse.Namespace, protocol: str, documents: Fitting) -> Work:
    queries = read_texts(options.queries)
    rows = [{"query": query, "document": text} for query, text in zip(cycle(queries), documents.texts, strict=False)]
    model, checkpoint = options.rerank_model or "rerank", options.rerank_checkpoint or options.rerank_model
    return Work(model, protocol, Path(checkpoint).name, rows, documents.label, None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all combinations; returns the exit status."""
    options = parse(arguments)
    loads: list[Concurrency | Rate] = [Concurrency(number) for number in options.concurrency]
    loads += [Rate(number, options.distribution) for number in options.rate]
    measurements: list[Measurement] = []
    failed = 0
    with _addresses(options) as addresses:
        for work, batch, load in product(find_work(options), options.batch, loads):
            try:
                line = measure(work, addresses[work.protocol], batch, load, options.seconds)
            except RuntimeError as error:
                failed += 1
                print(f"{work.protocol} {load}: {error}", file=sys.stderr, flush=True)
                continue
            measurements.append(line)
            print(line.summary(), line.note or "", flush=True)
            # At once, should the rest be cut off.
            path = write(options.machine, options.name, measurements, options.results)
    if measurements:
        print(path)
    return 1 if failed else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; without any load a sweep of concurrencies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--name", default="perf_analyzer", help="of the result file")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where such folders are")
    parser.add_argument("--grpc", help="host:port of a running server; else one is started")
    parser.add_argument("--http", help="host:port of a running server")
    parser.add_argument("--checkpoint", default=DEFAULT_CHECKPOINT, help="what the server serves, or is to serve")
    parser.add_argument("--rerank-checkpoint", help="for a server of its own: serve this as `rerank`, and measure it")
    parser.add_argument("--rerank-model", help="of a running server: measure this model, too")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=["grpc", "http"])
    parser.add_argument("--texts", type=Path, nargs="+", default=[PASSAGES], help=".jsonl, or a text a line")
    parser.add_argument("--queries", type=Path, nargs="+", default=[QUERIES], help="for the rerank model; likewise")
    parser.add_argument("--len", type=positive, nargs="+", default=[], help="made-up texts of so many tokens instead")
    parser.add_argument("--most-tokens", type=positive, default=256, help="longer texts are left out")
    parser.add_argument("--batch", type=positive, nargs="+", default=[1])
    parser.add_argument("--concurrency", type=positive, nargs="+", default=[], help="requests in flight: 1 4 16")
    parser.add_argument("--rate", type=float, nargs="+", default=[], help="requests a second")
    parser.add_argument("--distribution", choices=("poisson", "constant"), default="poisson", help="of --rate")
    parser.add_argument("--seconds", type=float, default=5, help="length of a window; a run has three")
    options = parser.parse_args(arguments)
    if any(rate <= 0 for rate in options.rate):
        parser.error("--rate: must be above 0")
    missing = {"http" if protocol == "http" else "grpc" for protocol in options.protocols}
    missing -= {name for name in ("grpc", "http") if getattr(options, name)}
    if (options.grpc or options.http) and missing:
        parser.error(f"--protocols: {' and '.join(sorted(missing))} needs an address of the running server")
    if not options.concurrency and not options.rate:
        options.concurrency = [1, 4, 16]
    return options


@contextlib.contextmanager
def _addresses(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    if options.grpc or options.http:
        yield {"grpc": options.grpc, "http": options.http, "stream": options.grpc}
        return
    door = Door.BOTH if "stream" in options.protocols else Door.UNARY
    serve = ServeOptions(door=door, checkpoint=options.checkpoint, rerank_checkpoint=options.rerank_checkpoint)
    with running_server(serve) as server:
        yield {"grpc": server.grpc, "http": server.http, "stream": server.grpc}


if __name__ == "__main__":
    sys.exit(main())
