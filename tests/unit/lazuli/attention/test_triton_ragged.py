"""The kernel runs in triton's interpreter, in a process of its own: the variable is read at import.

The interpreter does not compute products of bfloat16: float16 is checked, which takes the same code.
"""

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from lazuli.attention import triton_ragged
from lazuli.attention.base import AttentionMetadata
from lazuli.attention.triton_ragged import TileConfig, TritonAttention, attend, choose_config

CUDA = torch.device("cuda")
# triton 3.6 turns arrays of one number into loop bounds, which numpy no longer does.
INTERPRETER = find_spec("triton") is not None and np.lib.NumpyVersion(np.__version__) < "2.4.0"
SOURCES = Path(__file__).parents[4] / "backend_src"

MIXED = (1, 7, 64, 65, 130, 0, 0)
CHECKS = {
    "lengths": [
        ((length,), (2, 1, 32), config, causal)
        for length in (1, 7, 64, 65, 513)
        for config in (TileConfig(64, 64, 4), TileConfig(16, 128, 4, mask_all=True, late_q=True))
        for causal in (False, True)
    ],
    "mixed": [
        (MIXED, shape, config, causal)
        for shape in ((2, 2, 64), (4, 2, 32), (2, 1, 128))
        for config in (TileConfig(64, 32, 4, mask_all=True), TileConfig(32, 64, 4, late_q=True))
        for causal in (False, True)
    ],
    "several blocks a program": [
        (lengths, (2, 1, 16), TileConfig(16, 16, warps=1024), causal)  # so many warps leave four programs
        for lengths in ((1, 7, 64, 65) + (0,) * 30, (0,) * 20 + (40,), (3,) * 40, (0,) * 40 + (1,))
        for causal in (False, True)
    ],
    "many sequences": [((3, 17, 1) * 11, (2, 1, 16), TileConfig(16, 16, 1), True)],
    "long": [((4096,), (1, 1, 16), TileConfig(128, 128, 8), causal) for causal in (False, True)],
}
# Lengths, shape, configuration, causal, window, and whether there is a bias.
SEEN = {
    "windows": [
        ((1, 7, 65, 100, 0), (2, 1, 32), config, causal, window, False)
        for config in (
            TileConfig(64, 16, 4),  # the first blocks of keys hide from the last rows
            TileConfig(16, 64, 4, mask_all=True, late_q=True),
            TileConfig(32, 32, 1024),
        )
        for causal in (False, True)
        for window in (0, 16, 33, 200)
    ],
    "a window in a long one": [((1000,), (1, 1, 16), TileConfig(64, 64, 4), False, 64, False)],
    "biases": [
        ((1, 7, 65, 100, 0), (2, 1, 16), config, causal, window, True)
        for config in (TileConfig(32, 32, 4), TileConfig(16, 64, 4, mask_all=True, late_q=True))
        for causal in (False, True)
        for window in (None, 20)
    ],
}


def make(lengths, shape):
    """Views of one product with rows of NaN behind the last sequence, as the models pass them."""
    num_heads, num_kv_heads, head_dim = shape
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rows = (int(cu_seqlens[-1]) + 11, num_heads + 2 * num_kv_heads, head_dim)
    joined = torch.randn(rows, generator=torch.Generator().manual_seed(5)).half()
    joined[cu_seqlens[-1] :] = math.nan
    return joined.split((num_heads, num_kv_heads, num_kv_heads), dim=1), torch.from_numpy(cu_seqlens)


def make_bias(num_heads, reach=40):
    return 3 * torch.randn(num_heads, 2 * reach + 1, generator=torch.Generator().manual_seed(6))


def reference(query, key, value, cu_seqlens, causal, window=None, bias=None):
    """Softmax attention of each sequence by itself, in float32."""
    group = query.shape[1] // key.shape[1]
    outputs = []
    for start, end in pairwise(cu_seqlens.tolist()):
        q, k, v = (tensor[start:end].float().transpose(0, 1) for tensor in (query, key, value))
        scores = q @ k.repeat_interleave(group, 0).transpose(1, 2) / math.sqrt(query.shape[2])
        distance = torch.arange(end - start) - torch.arange(end - start).unsqueeze(1)
        if bias is not None:
            reach = bias.shape[1] // 2
            scores += bias[:, distance.clamp(-reach, reach) + reach]
        if causal:
            scores.masked_fill_(distance > 0, -math.inf)
        if window is not None:
            scores.masked_fill_(distance.abs() > window, -math.inf)
        outputs.append((scores.softmax(dim=-1) @ v.repeat_interleave(group, 0)).transpose(0, 1))
    return torch.cat(outputs)


def check_against_plain_softmax(name):
    cases = SEEN[name] if name in SEEN else [(*case, None, False) for case in CHECKS[name]]
    for lengths, shape, config, causal, window, biased in cases:
        heads, cu_seqlens = make(lengths, shape)
        options = {"causal": causal, "window": window, "bias": make_bias(shape[0]) if biased else None}
        output = attend(*heads, cu_seqlens, config, **options)
        assert output.is_contiguous()
        expected = reference(*heads, cu_seqlens, **options)
        torch.testing.assert_close(
            output[: len(expected)].float(), expected, atol=2e-3, rtol=2e-3, msg=lambda text, c=config: f"{c}: {text}"
        )


def check_neighbours_do_not_matter():
    (query, key, value), cu_seqlens = make((30, 65, 9, 0), (4, 2, 32))
    for config in (TileConfig(16, 32, 4, mask_all=True, late_q=True), TileConfig(32, 32, 4)):
        for options in ({}, {"window": 20}, {"bias": make_bias(4)}):
            together = attend(query, key, value, cu_seqlens, config, causal=False, **options)[30:95]
            alone = [tensor[30:95] for tensor in (query, key, value)]
            one = torch.tensor([0, 65], dtype=torch.int32)
            assert torch.equal(attend(*alone, one, config, causal=False, **options), together)


def run_in_interpreter(*arguments):
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": f"{SOURCES}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-W", "ignore", __file__, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


needs_interpreter = pytest.mark.skipif(not INTERPRETER, reason="needs triton, and numpy < 2.4 for its interpreter")


@needs_interpreter
@pytest.mark.parametrize("name", [*CHECKS, *SEEN])
def test_against_plain_softmax(name):
    run_in_interpreter(name)


@needs_interpreter
def test_neighbours_do_not_matter():
    run_in_interpreter()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [16, 32, 64, 128, 256])
def test_where_it_runs(dtype, head_dim):
    assert TritonAttention.why_not(CUDA, dtype, head_dim) is None


@pytest.mark.parametrize(
    ("device", "dtype", "head_dim", "reason"),
    [
        ("cpu", torch.bfloat16, 64, "needs a GPU"),
        ("cuda", torch.float32, 64, "not in torch.float32"),
        ("cuda", torch.bfloat16, 80, "head_dim must be a power of two from 16 to 256, not 80"),
        ("cuda", torch.bfloat16, 8, "not 8"),
    ],
)
def test_why_not(device, dtype, head_dim, reason):
    assert reason in TritonAttention.why_not(torch.device(device), dtype, head_dim)


@pytest.mark.parametrize("head_dim", [32, 128, 256])
@pytest.mark.parametrize("num_tokens", [16, 512, 16384])
@pytest.mark.parametrize("max_seqlen", [1, 16, 17, 128, 512, 513, 32768])
def test_every_batch_has_a_configuration(head_dim, num_tokens, max_seqlen):
    config = choose_config((num_tokens, 16, head_dim), -(-num_tokens // max_seqlen), max_seqlen)
    # Queries are read with each block of keys only where there are few of those.
    assert not config.late_q or max_seqlen <= 2 * config.block_n


def test_a_bucket_for_many_sequences_has_smaller_blocks_than_one_for_a_long_one():
    few, many = (choose_config((8192, 16, 128), number, 8192) for number in (2, 1024))
    assert few.block_m > many.block_m
    # With few tokens, it is the longest sequence that keeps the GPU waiting.
    assert choose_config((512, 16, 128), 64, 512) == choose_config((512, 16, 128), 1, 512)


def test_a_window_keeps_blocks_small():
    assert choose_config((8192, 12, 64), 1, 8192).block_m > choose_config((8192, 12, 64), 1, 8192, window=64).block_m
    assert choose_config((8192, 3, 256), 1, 8192, window=256) == choose_config((8192, 3, 256), 1, 8192)


def test_a_window_that_hides_nothing_takes_the_kernel_without(monkeypatch):
    seen = []
    monkeypatch.setattr(triton_ragged, "attend", lambda *arguments, **options: seen.append(options["window"]))
    heads, cu_seqlens = make((65,), (2, 1, 32))
    for window in (65, 64, 63):
        metadata = AttentionMetadata(cu_seqlens, cu_seqlens.numpy(), 65)
        TritonAttention().forward(*heads, metadata, window=window)
    assert seen == [None, None, 63]


if __name__ == "__main__":
    if sys.argv[1:]:
        check_against_plain_softmax(sys.argv[1])
    else:
        check_neighbours_do_not_matter()
