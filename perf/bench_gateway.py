"""What the gateway adds to a call, and what its parts cost.

Starts a server, a gateway that tokenises and one that does not, and takes turns between calling Triton's gRPC directly
and each gateway, over one connection each, so that what the machine does meanwhile meets all of them alike:

    python perf/bench_gateway.py --machine cpu-2core

The row "passed on" is the floor: an application of uvicorn that hands bytes to gRPC and back. Other servers of
OpenAI's API, or of `/embed` of text-embeddings-inference, take turns with the gateway if they are named:

    python perf/bench_gateway.py --peer "infinity=http://127.0.0.1:7997/embeddings,model=NAME,command=COMMAND"

Writes raw samples like the other benchmarks. `--idle 10000` opens so many connections that say nothing and measures
again. `--encode` compares libraries that write JSON and base64, without a server.
"""

import argparse
import base64
import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np
import orjson
import pybase64

import lazuli
from breakdown.doors import (
    CHECKPOINT,
    TEXT,
    Call,
    body_of,
    by_http_client,
    bytes_passed_on,
    direct,
    gateway,
    idle_connections,
    open_peer,
    peer_call,
    posted,
    request_of,
    timed,
)
from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from lazuli_client import codec
from peers.spec import parse_target
from reporting.measurement import Measurement, write

_WARM_UP = 20


def in_turns(calls: dict[str, Call], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each, after some that do not count.

    Each turn has another order: what one leaves in the caches, and what it still does, is not always the same one's.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order, chance = list(calls), random.Random(0)
    for turn in range(repeats + _WARM_UP):
        chance.shuffle(order)
        for name in order:
            milliseconds = calls[name]() * 1e3
            if turn >= _WARM_UP:
                samples[name].append(milliseconds)
    return samples


def measure_added(options: argparse.Namespace) -> list[Measurement]:
    """Calls directly and through gateways, of one text and of many."""
    found = []
    with ExitStack() as stack:
        address = options.server
        if address is None:
            address = stack.enter_context(running_server(ServeOptions(door=Door.UNARY))).grpc
        plain = stack.enter_context(gateway(address))
        tokenises = stack.enter_context(gateway(address, "--tokenizer", CHECKPOINT))
        passes_on = stack.enter_context(bytes_passed_on(address))
        for spec in options.peer:
            stack.enter_context(open_peer(spec))
        for rows in options.rows:
            texts = [f"{TEXT} {row}" for row in range(rows)]
            doors = {
                "gRPC": direct(address, texts),
                "passed on": posted(passes_on, codec.to_grpc(request_of(texts)).SerializeToString()),
                "gateway": posted(plain, body_of(plain, texts)),
                "gateway, tokenises": posted(tokenises, body_of(tokenises, texts)),
                "gateway, base64": posted(plain, body_of(plain, texts, encoding="base64")),
                "gateway, http.client": by_http_client(plain, body_of(plain, texts)),
            }
            doors |= {spec.kind: peer_call(spec, texts) for spec in options.peer}
            found += _measured(doors, options.repeats, f"rows {rows}")
        if options.idle:
            doors = {"gRPC": direct(address, [TEXT]), "gateway": posted(plain, body_of(plain, [TEXT]))}
            with idle_connections(plain, options.idle):
                found += _measured(doors, options.repeats, f"rows 1, {options.idle} idle connections")
    return found


def _measured(doors: Mapping[str, AbstractContextManager[Call]], repeats: int, note: str) -> list[Measurement]:
    with ExitStack() as stack:
        calls = {name: stack.enter_context(door) for name, door in doors.items()}
        return _noted(in_turns(calls, repeats), note)


def measure_encoding(options: argparse.Namespace) -> list[Measurement]:
    """What writing 100 vectors of 1024 numbers takes."""
    vectors = np.random.default_rng(0).standard_normal((100, 1024), np.float32)
    writers: dict[str, Callable[[], Any]] = {
        "json": lambda: json.dumps(vectors.tolist()),
        "orjson of lists": lambda: orjson.dumps(vectors.tolist()),
        "orjson of numpy": lambda: orjson.dumps(vectors, option=orjson.OPT_SERIALIZE_NUMPY),
        "base64": lambda: [base64.b64encode(row.tobytes()) for row in vectors],
        "pybase64 of numpy": lambda: [pybase64.b64encode(row.data.cast("B")) for row in vectors],
    }
    return _noted(in_turns({name: timed(write) for name, write in writers.items()}, options.repeats), "100 x 1024")


def _noted(samples: dict[str, list[float]], note: str) -> list[Measurement]:
    base = statistics.median(next(iter(samples.values())))
    found = []
    for name, values in samples.items():
        line = Measurement(
            system=f"lazuli {lazuli.__version__}",
            level="server",
            suite="gateway",
            model=CHECKPOINT,
            dtype="float32",
            samples_ms=values,
            concurrency=1,
            protocol=name,
            texts=None,
            note=note,
        )
        p50 = statistics.median(values)
        print(f"{note:32} {name:22} p50 {p50:8.3f} ms  added {p50 - base:+.3f}")
        found.append(line)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", help="folder under perf/results; nothing is written without it")
    parser.add_argument("--server", help="host:port of a server's gRPC; by default one is started")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument(
        "--peer",
        type=parse_target,
        action="append",
        default=[],
        metavar="NAME=URL[,model=NAME][,command=COMMAND]",
        help="another server that takes turns, and the command that starts it; may be repeated",
    )
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--encode", action="store_true")
    options = parser.parse_args(arguments)
    found = measure_encoding(options) if options.encode else measure_added(options)
    if options.machine:
        print(write(options.machine, "gateway_encoding" if options.encode else "gateway", found))


if __name__ == "__main__":
    main()
