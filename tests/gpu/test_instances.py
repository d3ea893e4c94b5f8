"""Two GPUs of one machine: an engine on each, which give the same vectors and leave the other GPU alone."""

import importlib.util
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from checkpoints.folder import find_checkpoint
from lazuli.config import EngineConfig
from lazuli.device import choose_device
from lazuli.engine import Engine
from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from lazuli_client import LazuliClient
from random_checkpoint import default_or_random

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]
LENGTHS = (1, 7, 64, 65, 300, 500)
NAME = default_or_random()

needs_server = pytest.mark.skipif(importlib.util.find_spec("pytriton") is None, reason="needs pytriton")


def engine_of(gpu_index, **parameters):
    """As the model of an instance makes it: `auto`, and the GPU that Triton names."""
    config = EngineConfig(checkpoint=NAME, dtype="bfloat16", **parameters)
    return Engine(config, choose_device(None, gpu_index))


def some_rows(seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(1000, 30522, size=length, dtype=np.int32) for length in LENGTHS]


def worst_cosine(left, right):
    return ((left * right).sum(axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)).min()


@pytest.mark.parametrize("graph_capture", ["off", "lazy"])
def test_the_second_gpu_gives_what_the_first_gives_and_does_not_use_it(graph_capture):
    first = engine_of(0, graph_capture=graph_capture)
    expected = [first.embed_ids(some_rows(seed)) for seed in range(3)]
    torch.cuda.synchronize(0)
    before = torch.cuda.memory_allocated(0)
    second = engine_of(1, graph_capture=graph_capture)
    assert second.device == torch.device("cuda", 1)
    for _ in range(3):  # eager, captured, replayed
        for seed in range(3):
            assert worst_cosine(second.embed_ids(some_rows(seed)), expected[seed]) >= 0.9999
    assert torch.cuda.memory_allocated(0) == before
    assert torch.cuda.memory_allocated(1) > 0


def test_both_at_the_same_time():
    engines = [engine_of(index) for index in (0, 1)]
    expected = [engines[0].embed_ids(some_rows(seed)) for seed in range(20)]

    def work(engine):
        for _ in range(10):
            for seed in range(20):
                assert worst_cosine(engine.embed_ids(some_rows(seed)), expected[seed]) >= 0.9999

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, engines))


@needs_server
def test_the_server_has_an_instance_on_each_gpu_and_both_work():
    texts = [f"text {number} of many" for number in range(256)]
    with running_server(ServeOptions(checkpoint=served_checkpoint(), door=Door.UNARY)) as server:
        with LazuliClient(server.grpc) as client:
            alone = client.embed(texts).embeddings

        def ask(_):
            with LazuliClient(server.grpc) as client:
                return [client.embed(texts).embeddings for _ in range(20)]

        with ThreadPoolExecutor(16) as clients:
            for answers in clients.map(ask, range(16)):
                assert min(worst_cosine(answer, alone) for answer in answers) >= 0.9995
        shares = shares_of_instances(server)
    assert len(shares) == torch.cuda.device_count()
    assert min(shares.values()) > 0, shares


@needs_server
def test_one_gpu_that_was_asked_for_has_one_instance():
    free = [torch.cuda.mem_get_info(index)[0] for index in (0, 1)]
    with running_server(ServeOptions(checkpoint=served_checkpoint(), door=Door.UNARY, device="cuda:1")) as server:
        with LazuliClient(server.grpc) as client:
            assert client.embed(["a blue gem"]).embeddings.shape == (1, 384)
        assert len(shares_of_instances(server)) == 1
        taken = [before - torch.cuda.mem_get_info(index)[0] for index, before in enumerate(free)]
    assert taken[1] > 100 << 20 > taken[0]


def served_checkpoint():
    """With a tokenizer, which one of random weights has not got."""
    return find_checkpoint(NAME)


def shares_of_instances(server):
    """Steps of each instance of `embedding` so far."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line for line in lines if line.startswith("lazuli_step_seconds_count{") and 'model="embedding"' in line]
    return {re.search(r'model_instance="([^"]*)"', line)[1]: float(line.rsplit(" ", 1)[1]) for line in counts}
