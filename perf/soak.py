"""A server under a steady mixed load of small requests, for long: whether it stays right, and what it holds.

    .venv/bin/python perf/soak.py --machine NAME [--minutes 20] [--device cuda] [--checkpoint FOLDER_OR_SHAPE]
    .venv/bin/python perf/soak.py --machine NAME --minutes 5 --server 127.0.0.1:8001 --http 127.0.0.1:8000 --pid 123

Starts `lazuli serve` unless `--server` (gRPC) names one. Clients of both protocols and of streams send texts, ids and
mistakes, and pairs if there is a model `rerank`; each answer is compared with that of its text alone, which was asked
for before the load. Memory, threads and files of each process are read all the time. Ends with 1 if an answer is
wrong or does not come, a process is not the one that it was, or something grows (`soaking/growth.py` says how much; a
run of a few minutes is too short to tell).
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import lazuli
from checkpoints.folder import find_checkpoint
from clients.unusable import UnusableError
from lazuli.config import DEFAULT_CHECKPOINT
from lazuli.errors import ConfigError
from lazuli_client.errors import LazuliError
from reporting.measurement import RESULTS, Measurement, file_name, positive, positive_number, write
from soaking.clients import ANSWERED, COLUMNS, EXACT, ROWS, SENT, work
from soaking.growth import LEAST_REQUESTS, LIMITS, PER, SUITE, WHOLE, Footprint, Held
from soaking.pool import make_pool
from soaking.readings import read
from soaking.server import Soaked, check_running, find_reranker, serve

# An answer in a batch differs from that alone by rounding: in float32 hardly, in bfloat16 by a cosine of 0.9999.
_TOLERANCE = {"cpu": 1e-4, "cuda": 1.4e-2}


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, write, judge; returns the exit status."""
    options = parse(arguments)
    try:
        return _run(options)
    except (ConfigError, LazuliError, UnusableError) as error:
        print(f"soak.py: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    checkpoint = find_checkpoint(options.checkpoint)
    with _target(options, checkpoint) as server:
        soak = Soak(server, options, checkpoint)
        soak.run()
    print(write(options.machine, options.name, soak.lines(), options.results))
    faults = soak.faults()
    print("\n".join(["faults:", *faults]) if faults else "no fault")
    if not soak.judges_growth():
        print(f"too short to say what grows: that takes {LEAST_REQUESTS} requests once it is warm")
    return 1 if faults else 0


class Soak:
    """One run on one server."""

    def __init__(self, server: Soaked, options: argparse.Namespace, checkpoint: str) -> None:
        """Ask for what is right."""
        self._server, self._options, self._checkpoint = server, options, checkpoint
        self._pool, self._kinds = make_pool(
            server.addresses["grpc"], checkpoint, options.tolerance or _TOLERANCE[options.device]
        )
        self._held: dict[str, Held] = {}
        self._samples: list[list[float]] = [[] for _ in self._kinds]
        self._errors: list[str] = []
        self._wall_s = 0.0
        self._counts = np.zeros((options.processes, len(self._kinds), COLUMNS), np.int64)
        print(f"{len(self._pool.texts)} texts, {options.processes} × {len(self._kinds)} clients", flush=True)

    def run(self) -> None:
        """Make the load, and read what is held meanwhile."""
        context = multiprocessing.get_context("spawn")  # gRPC's threads do not survive a fork
        workers = []
        for number in range(self._options.processes):
            shared, (ours, theirs) = context.RawArray("q", self._counts[number].size), context.Pipe()
            arguments = (self._server.addresses, self._kinds, self._pool, shared, number)
            process = context.Process(target=work, args=arguments, kwargs={"control": theirs}, daemon=True)
            process.start()
            workers.append((process, ours, np.frombuffer(shared, np.int64).reshape(self._counts[number].shape)))
        started = time.monotonic()
        self._watch(started, [counts for _, _, counts in workers])
        for _, control, _ in workers:
            control.send("end")
        for number, (process, control, counts) in enumerate(workers):
            samples, errors = control.recv()
            self._errors += errors
            for kept, more in zip(self._samples, samples, strict=True):
                kept += more
            process.join(10.0)
            self._counts[number] = counts
        self._wall_s = time.monotonic() - started

    def _watch(self, started: float, counts: Sequence[np.ndarray]) -> None:
        seconds, interval_s = 60 * self._options.minutes, self._options.interval
        due, shown = started + interval_s, started
        while due < started + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            answered = int(sum(each[:, ANSWERED].sum() for each in counts))
            read(self._server.pid, answered, self._held)
            due += interval_s
            if time.monotonic() - shown > 60:
                shown = time.monotonic()
                whole = {name: values[-1] for name, values in self._held[WHOLE].values.items()}
                print(f"{shown - started:.0f} s: {answered} requests, {whole}", flush=True)

    def lines(self) -> list[Any]:
        """For the result file: a line a kind of request, then a line a process."""
        model, dtype = (
            self._options.model or self._options.checkpoint.rstrip("/").rsplit("/", 1)[-1],
            self._options.dtype,
        )
        lines: list[Any] = [
            Measurement(
                system=f"lazuli {lazuli.__version__}",
                level="server",
                suite=SUITE,
                model=model,
                dtype=dtype or "auto",
                samples_ms=[round(sample, 3) for sample in samples],
                protocol=kind.protocol,
                batch=kind.rows,
                concurrency=self._options.processes,
                texts=None,
                note=kind.name,
                extra={
                    "requests": int(count[ANSWERED]),
                    "rows": int(count[ROWS]),
                    "lost": int(count[SENT] - count[ANSWERED]),
                    "exact": int(count[EXACT]),
                    "seconds": round(self._wall_s, 1),
                },
            )
            for kind, samples, count in zip(self._kinds, self._samples, self._counts.sum(axis=0), strict=True)
            if samples
        ]
        for name, held in self._held.items():
            growth = {each: round(held.growth(each), 3) for each in LIMITS if each in held.values}
            grows = [each for each in growth if held.grows(each)]
            lines.append(
                Footprint(
                    model, dtype or "auto", name, held.requests, held.values, growth, grows, self._options.interval
                )
            )
        return lines

    def judges_growth(self) -> bool:
        """Whether it was long enough for that."""
        return all(held.can_be_judged() for held in self._held.values())

    def faults(self) -> list[str]:
        """What was not as it should be."""
        found = list(dict.fromkeys(self._errors))
        for kind, count in zip(self._kinds, self._counts.sum(axis=0), strict=True):
            if count[SENT] != count[ANSWERED]:
                found.append(f"{kind.name}: {count[SENT] - count[ANSWERED]} of {count[SENT]} requests have no answer")
            if not count[ANSWERED]:
                found.append(f"{kind.name}: no request was answered")
        for name, held in self._held.items():
            if len(held.pids) > 1:
                found.append(f"{name}: {len(held.pids)} processes, one after the other")
            for each in LIMITS:
                if each in held.values and held.grows(each):
                    growth = held.growth(each)
                    found.append(
                        f"{name}: {each} grows by {growth:.2f} in {PER} requests, more than {LIMITS[each][0]:g}"
                    )
        return found


@contextmanager
def _target(options: argparse.Namespace, checkpoint: str) -> Iterator[Soaked]:
    if options.server:
        host, _, port = options.server.rpartition(":")
        server = Soaked({"grpc": options.server, "http": options.http or f"{host}:{int(port) - 1}"}, options.pid)
        check_running(server)
        yield server
        return
    flags = ["--door=both", f"--checkpoint={checkpoint}", f"--device={options.device}"]
    flags += [f"--dtype={options.dtype}"] if options.dtype else []
    if options.rerank_checkpoint:
        flags.append(f"--rerank-checkpoint={find_reranker(options.rerank_checkpoint)}")
    with serve(flags) as server:
        yield server


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return text


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--machine", type=file_name, required=True, help="folder of the result")
    add("--name", type=file_name, default=SUITE, help="file there")
    add("--results", type=Path, default=RESULTS, help="where such folders are")
    add("--minutes", type=positive_number, default=20.0, help="of load")
    add("--interval", type=positive_number, default=5.0, help="seconds between two readings")
    add("--processes", type=positive, default=1, help="of clients; each has one of every kind")
    add("--device", choices=list(_TOLERANCE), default="cpu", help="of the server")
    add("--dtype", help="of the server that is started")
    add("--checkpoint", default=DEFAULT_CHECKPOINT, help="folder, packaged checkpoint or shape")
    add("--model", help="what to call the checkpoint")
    add("--rerank-checkpoint", help="served as `rerank` beside it: a folder, or a name of checkpoints/families.py")
    add("--tolerance", type=float, help="most that an answer may be away, as a share; by default as the device allows")
    add(
        "--server",
        type=_address,
        metavar="HOST:PORT",
        help="gRPC of a running server with both doors, on this machine; with --pid",
    )
    add("--http", type=_address, metavar="HOST:PORT", help="its HTTP; by default the port before")
    add("--pid", type=positive, help="its first process")
    options = parser.parse_args(arguments)
    if bool(options.server) != bool(options.pid):
        parser.error("--server and --pid go together: what it holds is read from its processes")
    return options


if __name__ == "__main__":
    sys.exit(main())
