"""How long a server that has a fault is away: from the fault to the next right answer, for each kind of fault.

    .venv/bin/python perf/bench_recovery.py --machine NAME [--repeats 3] [--door unary] [--checkpoint FOLDER]

Takes `lazuli serve` with its usual settings and one client that asks without end, a short text each time. A sample is
the time from the signal until a request that was sent afterwards is answered; requests in flight end in an error or in
an answer meanwhile, and the longest of those waits is in the line as well.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import psutil

import lazuli
from lazuli.launch.preflight import free_ports
from reporting.measurement import Measurement, positive, write

# Name -> the model whose process gets the signal (None: the server itself), and the signal.
_FAULTS: dict[str, tuple[str | None, signal.Signals]] = {
    "engine killed": ("embedding", signal.SIGKILL),
    "engine stopped": ("embedding", signal.SIGSTOP),
    "tokenizer killed": ("tokenizer", signal.SIGKILL),
    "server killed": (None, signal.SIGKILL),
    "server stopped": (None, signal.SIGSTOP),
}
_PATIENCE_S = 300.0
_POLL_S = 0.02


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder of the result")
    parser.add_argument("--repeats", type=positive, default=3, help="times of each fault")
    parser.add_argument("--door", default="unary", help="as of lazuli serve")
    parser.add_argument("--checkpoint", default="all-MiniLM-L6-v2", help="as of lazuli serve")
    options = parser.parse_args()
    measurements = []
    for name, (model, number) in _FAULTS.items():
        samples, longest_s = [], 0.0
        for _ in range(options.repeats):
            # A new one each time: the pause before a restart doubles with each.
            with serving(options.door, options.checkpoint) as (process, address):
                away_s, waited_s = measure(process, address, model, number)
            samples.append(1e3 * away_s)
            longest_s = max(longest_s, waited_s)
        measurements.append(
            Measurement(
                system=f"lazuli {lazuli.__version__}",
                level="server",
                suite="recovery",
                model=Path(options.checkpoint).name,
                dtype="auto",
                samples_ms=samples,
                texts=None,
                note=name,
                extra={"longest_wait_s": longest_s},
            )
        )
        print(
            f"{name}: {', '.join(f'{sample / 1e3:.1f}' for sample in samples)} s, longest wait {longest_s:.1f} s",
            flush=True,
        )
        # At once, should the rest be cut off.
        path = write(options.machine, "recovery", measurements)
    print(path)


@contextmanager
def serving(door: str, checkpoint: str) -> Iterator[tuple[psutil.Process, str]]:
    """A supervised server: the process of the supervisor, and where HTTP is."""
    ports = dict(zip(("http", "grpc", "metrics"), free_ports(3), strict=True))
    flags = [f"--{name}-port={port}" for name, port in ports.items()]
    command = [str(Path(sys.executable).parent / "lazuli"), "serve", f"--door={door}", f"--checkpoint={checkpoint}"]
    with tempfile.NamedTemporaryFile() as output:
        started = subprocess.Popen([*command, *flags], stdout=output, stderr=subprocess.STDOUT)
        address = f"127.0.0.1:{ports['http']}"
        try:
            # Models answer before that, but who is not watched yet is not restarted either.
            while "Ctrl-C stops it" not in Path(output.name).read_text(encoding="utf-8"):
                if started.poll() is not None:
                    raise RuntimeError(Path(output.name).read_text(encoding="utf-8"))
                time.sleep(_POLL_S)
            yield psutil.Process(started.pid), address
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait(_PATIENCE_S)


def measure(process: psutil.Process, address: str, model: str | None, number: signal.Signals) -> tuple[float, float]:
    """Do it; returns seconds until an answer, and the longest wait of a request that was in flight."""
    waits: list[float] = []
    end = threading.Event()
    clients = [threading.Thread(target=keep_asking, args=[address, end, waits]) for _ in range(4)]
    for client in clients:
        client.start()
    time.sleep(1.0)
    waits.clear()
    started = time.monotonic()
    os.kill(find(process, model).pid, number)
    wait_for_failure(address)
    wait_for_answer(address)
    away_s = time.monotonic() - started
    end.set()
    for client in clients:
        client.join()
    return away_s, max(waits)


def find(process: psutil.Process, model: str | None) -> psutil.Process:
    """The server, or the process of a model."""
    children = process.children(recursive=True)
    if model is None:
        return next(child for child in children if child.name() == "tritonserver")
    return next(child for child in children if f"/{model}/1/model.py" in " ".join(child.cmdline()))


def keep_asking(address: str, end: threading.Event, waits: list[float]) -> None:
    """Ask until told to end, and note how long each request took to end somehow."""
    while not end.is_set():
        started = time.monotonic()
        if not answers(address, timeout_s=_PATIENCE_S):
            time.sleep(_POLL_S)
        waits.append(time.monotonic() - started)


def wait_for_failure(address: str) -> None:
    """Until a request fails, or does not end soon."""
    while answers(address):
        time.sleep(_POLL_S)


def wait_for_answer(address: str) -> None:
    """Until a request is answered.

    Raises:
        TimeoutError: If none is.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while not answers(address):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)


def answers(address: str, timeout_s: float = 1.0) -> bool:
    """Whether a new request, on a connection of its own, is answered in time."""
    body = json.dumps({"text": "a text"}).encode()
    try:
        with urllib.request.urlopen(f"http://{address}/v2/models/embed/generate", body, timeout_s) as answer:
            return len(json.load(answer)["embedding"]) > 0
    except (OSError, HTTPException):
        return False


if __name__ == "__main__":
    main()
