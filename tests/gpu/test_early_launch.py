"""Kernels that begin while the one before still runs compute what they do one after the other, bit for bit."""

import contextlib

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from lazuli.attention.base import AttentionMetadata
from lazuli.attention.triton_ragged import TritonAttention
from lazuli.batch import RaggedBatch
from lazuli.buckets import Bucket
from lazuli.checkpoint import load_checkpoint
from lazuli.encoder import Encoder
from lazuli.input_buffer import InputBuffer
from lazuli.models.registry import load_model
from lazuli.outputs.quantize import Quantizer
from lazuli.pooling import MODES, pool_and_finish
from lazuli.triton_kernels import early, rows
from random_checkpoint import write_checkpoint

DEVICE = torch.device("cuda", 0)
TIMES = 60
MODELS = {"qwen3-embedding-0.6b": "last", "bge-m3": "cls"}
# Fused layers, one text, many short ones in a bucket that could hold long ones, many tokens.
BATCHES = [
    (Bucket(128, 16, 128), (3, 50, 60)),
    (Bucket(512, 1, 512), (500,)),
    (Bucket(3584, 448, 512), (128,) * 25),
    (Bucket(4096, 16, 512), (100, 400, *(512,) * 7)),
]


@pytest.fixture(scope="module", params=MODELS)
def encoders(request, tmp_path_factory):
    """Of one model, by pooling."""
    folder = write_checkpoint(request.param, tmp_path_factory.mktemp("checkpoint"), layers=4)
    model = load_model(load_checkpoint(str(folder)), TritonAttention(), DEVICE, torch.bfloat16)
    return [Encoder(model, pooling) for pooling in (MODELS[request.param], "mean")]


@pytest.fixture
def set_early(monkeypatch):
    return lambda enabled: monkeypatch.setattr(early, "enabled", enabled)


class Passes:
    """The passes of batches of one layout with different ids, over the same memory, as an engine has them."""

    def __init__(self, encoder, sizes, lengths):
        rng = np.random.default_rng(0)
        ids = [[rng.integers(1000, 30000, size=length, dtype=np.int32) for length in lengths] for _ in range(2)]
        self.batches = [RaggedBatch.pack(texts, [True] * len(lengths)) for texts in ids]
        self._encoder, self._sizes = encoder, sizes
        self._buffer = InputBuffer(sizes.num_tokens, sizes.num_sequences, DEVICE)
        self._staging = [self._buffer.staging_pool.take() for _ in ids]
        self._inputs = self._buffer.inputs(self.batches[0].cu_seqlens, sizes)
        torch.cuda.synchronize()

    def run(self, number, replay=None):
        """One pass; its vectors."""
        batch = self.batches[number]
        self._buffer.upload(batch, self._sizes, self._staging[number])
        output = self._encoder.encode(self._inputs) if replay is None else replay()
        return output[: batch.num_sequences].clone()

    def capture(self):
        """A function that replays a graph of the pass."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self._encoder.encode(self._inputs)

        def replay():
            graph.replay()
            return output

        return replay


@pytest.mark.parametrize("pooling", [0, 1], ids=["its own", "mean"])
@pytest.mark.parametrize(("sizes", "lengths"), BATCHES, ids=str)
def test_passes(encoders, set_early, sizes, lengths, pooling):
    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        passes = Passes(encoders[pooling], sizes, lengths)
        set_early(False)
        expected = [passes.run(number) for number in (0, 1)]
        assert not torch.equal(*expected)
        late = passes.capture()
        assert all(torch.equal(passes.run(number, late), expected[number]) for number in (0, 1))
        set_early(True)
        outputs = [passes.run(number % 2) for number in range(TIMES)]
        replay = passes.capture()
        outputs += [passes.run(number % 2, replay) for number in range(TIMES)]
        stream.synchronize()
    assert all(torch.equal(output, expected[number % 2]) for number, output in enumerate(outputs))


@contextlib.contextmanager
def slow_start():
    """What is queued inside waits on the device until all of it is."""
    torch.cuda._sleep(20_000_000)
    yield
    torch.cuda.synchronize()


@pytest.mark.parametrize("num_tokens", [1, 130, 5000])
def test_a_chain_of_kernels_over_the_same_memory(set_early, num_tokens):
    """Each reads what the one before wrote, into memory that the one before that has read."""
    generator = torch.Generator("cuda").manual_seed(0)
    tokens = torch.randn(num_tokens, 1024, device=DEVICE, generator=generator).bfloat16()
    before, weight, bias, heads = (torch.randn(1024, device=DEVICE, generator=generator).bfloat16() for _ in range(4))
    angles = torch.randn(64, 64, device=DEVICE, generator=generator)
    tables, places = (angles.cos(), angles.sin()), torch.arange(num_tokens, device=DEVICE, dtype=torch.int32) % 64
    torch.cuda.synchronize()

    def run():
        hidden = tokens
        for _ in range(TIMES):
            hidden = rows.rms_norm(hidden, weight, 1e-6)
            hidden = rows.biased_layer_norm(hidden, before, weight, bias, 1e-5)
            rows.qk_norm_rotary(hidden.view(-1, 8, 128), heads.view(8, 128), *tables, places, 1e-6)
            hidden = rows.silu_multiply(torch.cat([hidden, hidden], dim=1))  # a kernel of torch in between
        return hidden

    set_early(False)
    expected = run()
    set_early(True)
    with slow_start():
        output = run()
    assert torch.equal(output, expected)
    assert output.isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("num_sequences", "lengths"), [(1, (5000,)), (700, (3, 17, 1, 64) * 100), (448, (128,) * 25)])
def test_attention_that_feeds_itself(set_early, num_sequences, lengths, causal):
    """Also with more blocks than programs start, and programs that have no block."""
    cu_seqlens = np.pad(np.cumsum([0, *lengths]), (0, num_sequences - len(lengths)), mode="edge").astype(np.int32)
    num_tokens, backend = int(cu_seqlens[-1]) + 50, TritonAttention()
    metadata = AttentionMetadata(torch.from_numpy(cu_seqlens).cuda(), cu_seqlens, num_tokens, num_tokens)
    key, value = (torch.randn(num_tokens, 4, 64, device=DEVICE).bfloat16() for _ in range(2))
    torch.cuda.synchronize()

    def run():
        hidden = value.repeat_interleave(4, dim=1)
        for _ in range(TIMES):
            hidden = backend.forward(hidden, key, hidden[:, :4], metadata, causal=causal)
        return hidden[: cu_seqlens[-1]]

    set_early(False)
    expected = run()
    set_early(True)
    with slow_start():
        output = run()
    assert torch.equal(output, expected)


@pytest.mark.parametrize("mode", MODES)
def test_pooling_behind_a_norm(set_early, mode):
    cu_seqlens = torch.tensor([0, 1, 8, 500, 564, 597, 597, 597], dtype=torch.int32).cuda()
    codes = torch.ones(7, dtype=torch.int32).cuda()
    tokens = [torch.randn(600, 1024).cuda() for _ in range(2)]
    torch.cuda.synchronize()

    def run():
        normed = (rows.rms_norm(tokens[number % 2], None, 1e-6) for number in range(TIMES))
        return [pool_and_finish(hidden, cu_seqlens, mode, codes, 600, Quantizer())[:5] for hidden in normed]

    set_early(False)
    expected = run()
    set_early(True)
    with slow_start():
        output = run()
    assert all(map(torch.equal, output, expected))
