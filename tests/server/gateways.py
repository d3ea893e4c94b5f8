"""`lazuli gateway` as a process, and plain requests to it."""

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request

from lazuli.launch.preflight import free_ports

from .serving import LAZULI


class Gateway:
    """A running gateway.

    Attributes:
        url: Where it listens.
        process: The process; with several workers, their parent.
        log_path: What it writes, both streams.
    """

    def __init__(self, log_path, replicas, *arguments, scheme="http", environment=None):
        port = free_ports(1)[0]
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.log_path = log_path
        flags = [flag for replica in replicas for flag in ("--replica", replica)]
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [LAZULI, "gateway", "--port", str(port), *flags, *map(str, arguments)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def wait_until_ready(self, servers=1, context=None):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log()
            if self._servers_ready(context) >= servers:
                return self
            time.sleep(0.1)
        raise AssertionError(self.log())

    def _servers_ready(self, context):
        """How many servers it has; -1 before it listens."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5, context=context) as answer:
                return json.loads(answer.read())["servers_ready"]
        except urllib.error.HTTPError as error:
            with error:
                return json.loads(error.read())["servers_ready"]
        except OSError:
            return -1

    def log(self):
        return self.log_path.read_text(errors="replace")

    def post(self, path, body, headers=None, timeout=60):
        """(status, headers, JSON) of the answer, errors too."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, dict(answer.headers), json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), json.loads(error.read())

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.read()

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextlib.contextmanager
def running_gateway(log_path, replicas, *arguments, context=None, **settings):
    gateway = Gateway(log_path, replicas, *arguments, **settings)
    try:
        yield gateway.wait_until_ready(len(replicas), context)
    finally:
        gateway.end()
