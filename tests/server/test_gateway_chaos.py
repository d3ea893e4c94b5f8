"""Three servers behind one gateway: one is killed, one is stopped in its tracks, one has short queues.

No request may be lost, none doubled, and the order is kept. Afterwards the stopped one goes on and gets work again.
"""

import contextlib
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server

from .conftest import assert_same_vectors
from .gateways import running_gateway

REPOSITORY = Path(__file__).parents[2] / "model_repository"
REQUESTS = 90


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """The last one refuses what is more than a few requests."""
    repository = tmp_path_factory.mktemp("small") / "model_repository"
    shutil.copytree(REPOSITORY, repository)
    config = repository / "embedding" / "config.pbtxt"
    text = config.read_text()
    for name, limit in {"max_waiting_tokens": 300, "token_budget": 256, "max_queued_tokens": 256}.items():
        old = f'"{name}", value: {{ string_value: "auto"'
        assert text.count(old) == 1
        text = text.replace(old, old.replace("auto", str(limit)))
    config.write_text(text)
    options = [ServeOptions(door=Door.UNARY, threads=1)] * 2
    options.append(ServeOptions(model_repositories=(repository,), door=Door.UNARY, threads=1))
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(running_server(one)) for one in options]


def processes(server):
    """Ids of the server and of its model processes."""
    import psutil

    parent = psutil.Process(server.process.pid)
    return [parent.pid, *(child.pid for child in parent.children(recursive=True))]


def send_all(ids, number):
    for process_id in ids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, number)


def test_no_request_is_lost_or_doubled(servers, tmp_path, reference):
    killed, stopped, small = servers
    killed_ids, stopped_ids = processes(killed), processes(stopped)
    arguments = ["--chunk-tokens", "200", "--query-tokens", "100", "--bulk-tokens", "800", "--queue", "50"]
    arguments += ["--probe-interval", "0.3", "--probe-timeout", "2"]
    answered = threading.Semaphore(0)
    with running_gateway(tmp_path / "log", [one.grpc for one in servers], *arguments) as gateway:

        def ask(number):
            rows = (1, 1, 1, 12)[number % 4]
            first = number * 7 % (len(reference[0]) - rows)
            body = {"model": "embed", "input": reference[0][first : first + rows]}
            status, _, found = gateway.post("/v1/embeddings", body)
            answered.release()
            assert status == 200, found
            assert [one["index"] for one in found["data"]] == list(range(rows))
            vectors = np.array([one["embedding"] for one in found["data"]], np.float32)
            assert_same_vectors(vectors, reference[1][first : first + rows])

        try:
            with ThreadPoolExecutor(6) as pool:
                asked = [pool.submit(ask, number) for number in range(REQUESTS)]
                for _ in range(REQUESTS // 6):
                    answered.acquire(timeout=60)
                send_all(killed_ids, signal.SIGKILL)
                send_all(stopped_ids, signal.SIGSTOP)
                for one in asked:
                    one.result()
            log = gateway.log()
            assert f"server {killed.grpc} is out" in log
            assert f"server {stopped.grpc} is out" in log
        finally:
            send_all(stopped_ids, signal.SIGCONT)
        end = time.monotonic() + 30
        while f"server {stopped.grpc} answers" not in gateway.log().partition(f"server {stopped.grpc} is out")[2]:
            assert time.monotonic() < end, gateway.log()
            time.sleep(0.1)
        figures = gateway.get("/metrics").decode()
        line = f"lazuli_gateway_rows_total {sum((1, 1, 1, 12)[number % 4] for number in range(REQUESTS))}.0"
        assert line in figures
        refusals = f'lazuli_gateway_server_refusals{{server="{small.grpc}"}}'
        assert float(figures.partition(refusals)[2].split()[0]) > 0
