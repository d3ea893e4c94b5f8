"""The server that a benchmark measures: one that is named, or one of its own.

Takes the options of `bench_server.py`; yields addresses. Knows nothing of what is measured.
"""

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from breakdown.triton_trace import trace_flags, tracing
from clients.senders import PROTOCOLS
from lazuli.launch.options import Door, Dtype, ServeOptions
from lazuli.launch.running import RunningServer, running_server


@dataclass(frozen=True)
class Target:
    """A server to measure.

    Attributes:
        addresses: host:port by protocol.
        trace: Makes a block within which Triton writes timestamps to a file; None for a server of somebody else.
    """

    addresses: dict[str, str]
    trace: Callable[[], AbstractContextManager[Path]] | None


@contextlib.contextmanager
def open_target(options: argparse.Namespace, checkpoint: str) -> Iterator[Target]:
    """The server that the options name, or one that runs as long as the block."""
    named = {protocol: getattr(options, protocol) for protocol in PROTOCOLS if getattr(options, protocol)}
    if named:
        yield Target({protocol: named[protocol] for protocol in options.protocols if protocol in named}, None)
        return
    with tempfile.TemporaryDirectory(prefix="lazuli-trace-") as folder:
        file = Path(folder) / "trace.json"
        serve = ServeOptions(
            door=Door.UNARY,
            checkpoint=checkpoint,
            device=options.device,
            dtype=Dtype(options.dtype) if options.dtype else None,
            max_seq_length=options.max_seq_length,
            extra_flags=trace_flags(file),
        )
        began = time.perf_counter()
        environment = dict(pair.split("=", 1) for pair in options.env)
        with running_server(serve, environment=environment, log_path=options.log) as server:
            print(f"ready after {time.perf_counter() - began:.1f} s", flush=True)
            addresses = {"grpc": server.grpc, "http": server.http}
            yield Target({protocol: addresses[protocol] for protocol in options.protocols}, _tracer(server, file))


def _tracer(server: RunningServer, file: Path) -> Callable[[], AbstractContextManager[Path]]:
    @contextlib.contextmanager
    def trace() -> Iterator[Path]:
        with tracing(server.http, server.admin_key):
            yield file

    return trace
