"""A device that is short of memory, really: PyTorch's allocator may take no more. Requests fail or wait; none hangs."""

import gc
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.errors import DeviceError
from lazuli.options import RequestOptions
from lazuli.service import EmbeddingService
from random_checkpoint import default_or_random

from .random_rows import rows_of, worst_cosine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NAME = default_or_random()
# Far more than is cached for anything that runs before: 64 MiB of bfloat16 in the widest layer alone.
LARGE = [256] * 80
SMALL = [12, 7, 30]


@contextmanager
def no_more_memory():
    """Inside, the process keeps what is in use, and gets no more."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def without_memory(capture):
    """The same, but there is no more memory meanwhile."""

    def capture_without_memory(*arguments, **options):
        with no_more_memory():
            return capture(*arguments, **options)

    return capture_without_memory


def config(**parameters):
    return EngineConfig(checkpoint=NAME, dtype="bfloat16", device="cuda", token_budget=32768, **parameters)


@pytest.fixture(scope="module")
def eager():
    return Engine(config(graph_capture="off"), torch.device("cuda", 0))


class Sender:
    def __init__(self):
        self.part, self.error, self.ended = None, None, threading.Event()

    def prepare(self, part):
        pass

    def send(self, part, *, final):
        self.part = part
        self.ended.set()

    def send_error(self, error):
        self.error = error
        self.ended.set()

    def is_cancelled(self):
        return False


def submit(service, rows):
    mask = np.arange(max(map(len, rows))) < np.array([len(row) for row in rows])[:, None]
    input_ids = np.zeros(mask.shape, dtype=np.int32)
    input_ids[mask] = np.concatenate(rows)
    sender = Sender()
    # As a query, it is one batch.
    service.submit(input_ids, mask.astype(np.int8), RequestOptions(workload="query"), sender)
    return sender


def test_a_batch_that_does_not_fit_fails_alone_and_fits_later(eager):
    large, small = rows_of(LARGE, 0), rows_of(SMALL, 1)
    expected_large, expected_small = eager.embed_ids(large), eager.embed_ids(small)
    service = EmbeddingService(config(graph_capture="off"), streaming=False)
    try:
        assert submit(service, small).ended.wait(60)
        with no_more_memory():
            senders = [submit(service, large) for _ in range(3)]
            for sender in senders:
                assert sender.ended.wait(60), "a request hangs"
                assert isinstance(sender.error, DeviceError)
                assert "the forward pass failed" in str(sender.error)
        for rows, expected in ((small, expected_small), (large, expected_large)):
            sender = submit(service, rows)
            assert sender.ended.wait(60)
            assert sender.error is None
            assert worst_cosine(sender.part.outputs["embedding"], expected) >= 0.9999
    finally:
        service.close()


def test_a_graph_that_does_not_fit_is_done_without(eager, monkeypatch):
    """There is memory to run a batch, but none for the pool of a graph: torch would give back what is cached for it."""
    rows = rows_of([200, 100, 212], 2)
    expected = eager.embed_ids(rows)
    engine = Engine(config(graph_capture="lazy"), torch.device("cuda", 0))
    with monkeypatch.context() as patch:
        patch.setattr(engine._stepper._recorder, "capture", without_memory(engine._stepper._recorder.capture))
        for _ in range(4):  # the second time would capture
            assert worst_cosine(engine.embed_ids(rows), expected) >= 0.9999
        assert (engine.graph_counters.captured, engine.graph_counters.failed) == (0, 1)
    others = rows_of([400, 300], 3)
    for _ in range(3):
        assert worst_cosine(engine.embed_ids(others), eager.embed_ids(others)) >= 0.9999
    assert engine.graph_counters.captured == 1


# Nothing may keep the graph that failed: it is its end that torch could not bear.
FIRST_CAPTURE = """
import logging, sys
logging.disable()
sys.path[:0] = {path!r}
import torch
from tests.gpu.test_memory_faults import config, rows_of, without_memory
from lazuli.engine import Engine
engine = Engine(config(graph_capture="lazy"), torch.device("cuda", 0))
engine._stepper._recorder.capture = without_memory(engine._stepper._recorder.capture)
for _ in range(4):
    engine.embed_ids(rows_of([200, 100, 212], 2))
print(engine.graph_counters.captured, engine.graph_counters.failed)
"""


def test_not_even_the_first_graph_of_a_process():
    root = str(Path(__file__).parents[2])
    code = FIRST_CAPTURE.format(path=[root, *sys.path])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split() == ["0", "1"]
