"""The server of a soak: `lazuli serve` as users run it, with its supervisor; or one that runs already.

Yields addresses and the first process. Knows nothing of what is asked.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from clients.senders import connect
from clients.unusable import UnusableError, unusable
from lazuli.launch.preflight import free_ports
from lazuli_client.errors import LazuliError
from soaking.readings import can_be_read

_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Soaked:
    """A server.

    Attributes:
        addresses: host:port by protocol.
        pid: Of its first process, whose descendants are all of it.
        log: What the command has written, if it was started here.
    """

    addresses: dict[str, str]
    pid: int
    log: Path | None = None


def find_reranker(name: str) -> str:
    """A checkpoint that reranks: a folder, or the name of a published one, in whose place a small one is written."""
    if Path(name).is_dir():
        return name
    # Here, as a machine with a GPU may lack `transformers`, which writes it.
    from checkpoints.families import STANDS, write_model, write_tokenizer

    stand = STANDS[name]
    folder = Path(tempfile.gettempdir()) / "lazuli-shapes" / name
    if not (folder / "tokenizer.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_model(stand, folder, layers=2)
        write_tokenizer(stand, folder, folder.parent)
    return str(folder)


def check_running(server: Soaked) -> None:
    """See that a server which runs already can be read and asked.

    Raises:
        UnusableError: If its first process gives nothing to read, or one of its doors does not answer.
    """
    if not can_be_read(server.pid):
        raise UnusableError(f"process {server.pid} gives nothing to read: it has ended, or is another user's")
    for protocol, address in server.addresses.items():
        with closing(connect(protocol, address)) as sender:
            try:
                sender.ping()
            except (LazuliError, OSError, RuntimeError, HTTPException) as error:
                raise unusable(f"the server at {address} ({protocol}) does not answer", error) from error


@contextmanager
def serve(arguments: Sequence[str]) -> Iterator[Soaked]:
    """Start `lazuli serve` on free ports, and stop it at the end of the block.

    Raises:
        RuntimeError: If it does not start, with what it said; or if it does not end in good order.
    """
    ports = dict(zip(("http", "grpc", "metrics"), free_ports(3), strict=True))
    command = [sys.executable, "-c", "from lazuli.cli import main; main()", "serve", *arguments]
    with tempfile.NamedTemporaryFile(suffix=".log") as output:
        log = Path(output.name)
        flags = [f"--{name}-port={port}" for name, port in ports.items()]
        process = subprocess.Popen([*command, *flags], stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while "Ctrl-C stops it" not in log.read_text(encoding="utf-8"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"it does not start: {log.read_text(encoding='utf-8')}")
                time.sleep(0.1)
            yield Soaked({name: f"127.0.0.1:{ports[name]}" for name in ("http", "grpc")}, process.pid, log)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(_PATIENCE_S)
        if code != 0:
            raise RuntimeError(f"it ended with {code}: {log.read_text(encoding='utf-8')}")
