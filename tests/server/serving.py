"""The `lazuli` command as a user runs it."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

from lazuli.launch.preflight import free_ports

LAZULI = str(Path(sys.executable).parent / "lazuli")


def run(*arguments, **settings):
    return subprocess.run([LAZULI, *map(str, arguments)], capture_output=True, text=True, timeout=120, **settings)


def port_flags(ports):
    return [f"--{name}-port={port}" for name, port in zip(("http", "grpc", "metrics"), ports, strict=True)]


class Serving:
    """A `lazuli serve` whose output is read while it runs; `wrapper` is a command that starts it."""

    def __init__(self, *arguments, wrapper=(), **settings):
        self.ports = free_ports(3)
        self.process = subprocess.Popen(
            [*wrapper, LAZULI, "serve", *port_flags(self.ports), *arguments],
            stdout=subprocess.PIPE,
            # A shell that runs the tests in the background has them ignore Ctrl-C, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            stderr=subprocess.STDOUT,
            text=True,
            **settings,
        )
        self.lines = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if "Ctrl-C stops it" in line:
                self._ready.set()
        self._ready.set()

    def banner(self):
        assert self._ready.wait(timeout=200)
        assert self.process.poll() is None, self.lines
        return "".join(self.lines)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=30)
        self._reader.join()
        return code

    def end(self):
        """Leave nothing behind, however the test went: killed at once, it could not end the server's processes."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(timeout=30)
        self.process.stdout.close()
