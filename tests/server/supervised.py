"""A `lazuli serve` to which bad things are done, and clients that keep asking meanwhile."""

import http.client
import json
import threading
import time
from contextlib import contextmanager

import psutil

from lazuli.launch.preflight import free_ports
from lazuli_client import LazuliClient

from .conftest import assert_same_vectors
from .serving import Serving

# What a small machine under other load may take to start a server; nothing waits for so long otherwise.
PATIENCE_S = 150.0


class Supervised(Serving):
    """It looks at its models often, and says on `/ready` how they are."""

    def __init__(self, *arguments, **settings):
        (self.health_port,) = free_ports(1)
        flags = ["--probe-interval=0.5", "--probe-timeout=2", "--exit-timeout=2", f"--health-port={self.health_port}"]
        super().__init__(*flags, *arguments, **settings)
        self.http, self.grpc, self.metrics = (f"127.0.0.1:{port}" for port in self.ports)

    def ready(self):
        """(whether, what the page says)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.health_port, timeout=10)
        try:
            connection.request("GET", "/ready")
            answer = connection.getresponse()
            return answer.status == 200, json.loads(answer.read())
        finally:
            connection.close()

    def wait_until(self, wanted):
        """Wait until `/ready` is so; returns what it says then."""
        wait_for(lambda: self.ready()[0] is wanted, f"/ready to become {wanted}: {self.lines}")
        return self.ready()[1]

    def events(self, name):
        """The structured lines about an event so far."""
        return [line for line in map(json.loads, filter(is_json, list(self.lines))) if line["event"] == name]

    def server(self):
        """The tritonserver."""
        return next(child for child in self._children() if child.name() == "tritonserver")

    def stub(self, model):
        """The process of a model."""
        return next(child for child in self._children() if f"/{model}/1/model.py" in " ".join(child.cmdline()))

    def _children(self):
        return psutil.Process(self.process.pid).children(recursive=True)


def is_json(line):
    return line.startswith("{")


def wait_for(condition, what, timeout_s=PATIENCE_S):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


@contextmanager
def load(server, reference, clients=6):
    """Clients that ask all the time, over both protocols; whatever they get must be right, and errors are theirs.

    Their retries outlast a restart, so that inside the block no request may fail.
    """
    texts, expected = reference
    end, asked = threading.Event(), [0] * clients

    def run(number):
        url, protocol = (server.grpc, "grpc") if number % 2 else (server.http, "http")
        with LazuliClient(url, protocol=protocol, timeout_s=PATIENCE_S, retries=100) as client:
            while not end.is_set():
                rows = [(number + 7 * asked[number] + offset) % len(texts) for offset in range(8)]
                assert_same_vectors(client.embed([texts[row] for row in rows]).embeddings, expected[rows])
                asked[number] += 1

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(run, number) for number in range(clients)]
        try:
            wait_for(lambda: all(asked), "the first answers")
            before = list(asked)
            yield
            wait_for(
                lambda: all(now > then for now, then in zip(asked, before, strict=True)), "an answer for everybody"
            )
        finally:
            end.set()
        for future in running:
            future.result(timeout=PATIENCE_S)
