"""SIGTERM under load: every request is answered rightly or refused, nothing hangs, and the server ends in seconds."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from geventhttpclient.response import HTTPConnectionClosed
from tritonclient.utils import InferenceServerException

from lazuli.launch.options import ServeOptions
from lazuli.launch.running import running_server
from lazuli_client import LazuliClient

from .conftest import assert_same_vectors
from .wire import DOORS, HttpError

CLIENTS = 16
EXIT_TIMEOUT_S = 10
# The server unloads its models after the last answer, which takes a while on a slow machine.
LIMIT_S = EXIT_TIMEOUT_S + 60


@pytest.mark.parametrize("door", ["grpc-infer", "grpc-stream", "http-infer", "http-generate"])
def test_sigterm_under_load(reference, door):
    texts, expected = reference
    outcomes, busy = [], threading.Barrier(CLIENTS + 1)

    def client(number):
        """Ask until the server is gone; the first answers prove that there was load."""
        rows = list(range(number, number + 10))
        for round_number in range(1000):
            if round_number == 2:
                busy.wait(timeout=120)
            try:
                vectors, _ = DOORS[door](server, [texts[row] for row in rows])
            except (InferenceServerException, HttpError, OSError, HTTPConnectionClosed) as error:
                outcomes.append(error)
                return
            assert_same_vectors(vectors, expected[rows])

    with (
        running_server(ServeOptions(exit_timeout_s=EXIT_TIMEOUT_S)) as server,
        ThreadPoolExecutor(CLIENTS) as clients,
    ):
        running = [clients.submit(client, number) for number in range(CLIENTS)]
        busy.wait(timeout=120)
        os.kill(server.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + LIMIT_S
        while server.process.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.process.exit_code() == 0
        for future in running:
            future.result(timeout=30)  # raises what a wrong vector raised
    assert len(outcomes) == CLIENTS


def test_streams_read_or_left_early_do_not_delay_the_end(reference):
    """Triton 24.10 keeps requests of streams that were cancelled; ours are not."""
    texts = reference[0][:24]
    with running_server() as server:
        with LazuliClient(server.grpc, rows_per_request=4) as client:
            for number in range(60):
                for part in client.embed_iter(texts):
                    assert part.embeddings.shape[1] == 384
                    if number % 2:
                        break
        assert server.process.stop(EXIT_TIMEOUT_S)
        assert server.process.exit_code() == 0
