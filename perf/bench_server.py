"""The real server: text in, vectors out, over gRPC and HTTP.

    .venv/bin/python perf/bench_server.py --machine h200 --checkpoint qwen3-0.6b-bidirectional --name server_qwen3

Starts a server of its own unless `--grpc` or `--http` names one. The checkpoint is a folder, a packaged one, or a shape
of `random_checkpoint.py`, which is made with a tokenizer. Every request has other texts. Suites: `latency` (one text),
`scoring` (several of 512 tokens), `throughput` (four clients of 100 texts each), `concurrency` (clients of one text
each), `generator` (the same clients asking for health: what the load generator can do), `parts` (one request, part by
part).
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import tokenizers

import lazuli
from alone import Alone, measure_alone
from lazuli.checkpoint import load_checkpoint, resolve_checkpoint
from lazuli.config import DEFAULT_CHECKPOINT
from lazuli.launch.options import Dtype
from load_generator import Load, LoadGenerator
from measurement import Measurement, positive, write
from senders import PROTOCOLS
from server_parts import measure_parts
from server_target import Target, find_checkpoint, open_target
from text_source import TextSource, single_token_words

SUITES = ("parts", "latency", "scoring", "concurrency", "throughput", "generator")
_SCORED_LENGTH = 512
_CLIENTS = 4
_TEXTS_A_CLIENT = 100
# Eager, capture and some replays of each size.
_WARM_UP_ROUNDS = 8
_HEADLINE = (16, 512)


class Bench:
    """Runs suites against one server and collects what they measured."""

    def __init__(self, options: argparse.Namespace, target: Target, generator: LoadGenerator, limit: int) -> None:
        """Wrap what all suites need; texts longer than `limit` tokens are left out."""
        self._options = options
        self._target = target
        self._generator = generator
        self._limit = limit
        self.measurements: list[Measurement] = []

    def latency(self, protocol: str) -> None:
        """One text at a time."""
        for length in self._fitting(self._options.len):
            self._measure("latency", protocol, length, rounds=self._options.repeats)

    def scoring(self, protocol: str) -> None:
        """One request at a time, of several texts."""
        for batch in self._options.batch if self._fitting([_SCORED_LENGTH]) else []:
            self._measure("scoring", protocol, _SCORED_LENGTH, batch=batch, rounds=max(self._options.repeats // 4, 5))

    def throughput(self, protocol: str) -> None:
        """Four clients that keep asking for 100 texts."""
        for length in self._fitting(self._options.throughput):
            clients = {"batch": _TEXTS_A_CLIENT, "concurrency": _CLIENTS}
            self._measure("throughput", protocol, length, rounds=self._options.rounds, warm_up_rounds=2, **clients)

    def concurrency(self, protocol: str) -> None:
        """Clients of one text each, for some seconds."""
        for length in self._fitting(self._options.concurrency_len):
            for clients in self._options.concurrency:
                self._measure("concurrency", protocol, length, concurrency=clients)

    def generator(self, protocol: str) -> None:
        """The same clients, asking for health."""
        for clients in self._options.concurrency:
            self._measure("generator", protocol, 0, concurrency=clients)

    def _fitting(self, lengths: Sequence[int]) -> list[int]:
        return [length for length in lengths if length <= self._limit]

    def _measure(
        self,
        suite: str,
        protocol: str,
        length: int,
        *,
        batch: int = 1,
        concurrency: int = 1,
        rounds: int | None = None,
        warm_up_rounds: int = _WARM_UP_ROUNDS,
    ) -> None:
        address = self._target.addresses[protocol]

        def load(rounds: int | None, seconds: float) -> Load:
            return Load(protocol, address, length, batch, concurrency, rounds, seconds)

        self._generator.run(load(warm_up_rounds if rounds else None, self._options.seconds / 4))
        result = self._generator.run(load(rounds, self._options.seconds))
        single = concurrency == 1
        self.note(
            suite,
            result.samples_ms,
            protocol=protocol,
            len=length or None,
            batch=batch if length else None,
            concurrency=None if single and suite != "concurrency" else concurrency,
            texts=batch if length else None,
            tokens=batch * length or None,
            # One client alone waits between requests only for its own next text, which is no matter of the server's.
            wall_s=None if single else result.wall_s,
            extra={
                "load_processes": result.processes,
                "load_core_share": round(result.busiest_core_share, 3),
                "load_gap_ms": round(result.gap_ms, 4),
                "requests_per_s": round(len(result.samples_ms) / result.wall_s, 1),
            },
        )

    def note(self, suite: str, samples: list[float], **fields: object) -> None:
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
    tokenizer = tokenizers.Tokenizer.from_file(str(resolve_checkpoint(checkpoint) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    words, num_special = single_token_words(tokenizer)
    source = TextSource(words, num_special, seed=10**9)
    texts = {length: source.texts(options.repeats, length) for length in options.parts_len if length <= limit}
    alone = None
    if "parts" in options.suites and texts:
        print("measuring engine and tokenizer alone ...", flush=True)
        alone = measure_alone(checkpoint, options.device, options.dtype, texts, options.repeats)
    processes = options.processes or max(1, len(os.sched_getaffinity(0)) // 2)
    with open_target(options, checkpoint) as target, LoadGenerator(words, num_special, processes) as generator:
        bench = Bench(options, target, generator, limit)
        for suite in options.suites:
            for protocol in target.addresses:
                if suite != "parts":
                    getattr(bench, suite)(protocol)
                elif alone is not None:
                    _note_parts(bench, target, protocol, texts, tokenizer, alone, options.repeats)
            # After each, so that a run that is cut off leaves what it has.
            path = write(options.machine, options.name, bench.measurements)
    print(path)
    print("\n".join(headlines(bench.measurements)))


def headlines(measurements: Sequence[Measurement]) -> list[str]:
    """What 16 clients of one text of 512 tokens get."""
    return [
        line.summary()
        for line in measurements
        if line.suite == "concurrency" and (line.concurrency, line.len) == _HEADLINE
    ]


def _note_parts(
    bench: Bench,
    target: Target,
    protocol: str,
    texts: dict[int, list[str]],
    tokenizer: tokenizers.Tokenizer,
    alone: Alone,
    repeats: int,
) -> None:
    for length, pool in texts.items():
        address = target.addresses[protocol]
        for part in measure_parts(protocol, address, length, pool, tokenizer, alone, repeats, target.trace):
            note = f"{part.name} ({part.how})"
            bench.note("parts", part.samples_ms, protocol=protocol, len=length, texts=None, note=note)


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
    parser.add_argument("--len", type=positive, nargs="*", default=[16, 128, 512, 4096], help="latency: of one text")
    parser.add_argument("--batch", type=positive, nargs="*", default=[5, 25, 50], help="scoring: texts of 512 tokens")
    parser.add_argument("--throughput", type=positive, nargs="*", default=[512, 4096], help="tokens of each text")
    parser.add_argument("--concurrency", type=positive, nargs="*", default=[1, 4, 16, 64], help="clients")
    parser.add_argument("--concurrency-len", type=positive, nargs="*", default=[128, 512], help="tokens of each text")
    parser.add_argument("--parts-len", type=positive, nargs="*", default=[16, 128, 512], help="tokens of each text")
    parser.add_argument("--repeats", type=positive, default=200, help="requests of latency and of each part")
    parser.add_argument("--rounds", type=positive, default=3, help="throughput: requests of each client")
    parser.add_argument("--seconds", type=float, default=5.0, help="concurrency: of each run, after a quarter of it")
    parser.add_argument("--processes", type=positive, help="of the load generator; default half the cores")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
