import numpy as np
import pytest
import torch

from lazuli.errors import ConfigError
from lazuli.models.base import ModelShape
from lazuli.precision import MIN_COSINE, check_finite, check_float16, choose_cpu_dtype, has_amx_bf16, worst_cosine


class FakeEncoder:
    """Vectors of unit length whose cosine with those of error 0 is 1 - error, in the worst row."""

    shape = ModelShape(hidden_size=2, head_dim=1, vocab_size=50, max_positions=512)

    def __init__(self, dtype, error=0.0):
        self.dtype = dtype
        self._cosine = 1 - error
        self.inputs = []

    def encode(self, inputs):
        self.inputs.append(inputs)
        vectors = torch.tensor([[1.0, 0.0]]).repeat(len(inputs.finish), 1)
        vectors[1] = torch.tensor([self._cosine, (1 - self._cosine**2) ** 0.5])
        return vectors


def choose(amx, error):
    loaded = []

    def load(dtype):
        loaded.append(dtype)
        return FakeEncoder(dtype, error if dtype == torch.bfloat16 else 0.0)

    return choose_cpu_dtype(load, amx).dtype, loaded


def test_without_amx_bfloat16_is_not_even_loaded():
    assert choose(False, 0.0) == (torch.float32, [torch.float32])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (0.0, torch.bfloat16),
        ((1 - MIN_COSINE) * 0.9, torch.bfloat16),
        ((1 - MIN_COSINE) * 1.1, torch.float32),
        (0.5, torch.float32),
        (float("nan"), torch.float32),
    ],
)
def test_with_amx_the_vectors_decide(error, expected):
    assert choose(True, error)[0] == expected


def test_the_worst_row_counts():
    assert worst_cosine(FakeEncoder(torch.float32), FakeEncoder(torch.float32, 0.25)) == pytest.approx(0.75)


def test_both_see_the_same_fixed_probe_of_several_lengths_within_the_vocabulary():
    encoders = [FakeEncoder(torch.float32), FakeEncoder(torch.float32)]
    worst_cosine(*encoders)
    first, second = (encoder.inputs[0] for encoder in encoders)
    assert first is second
    assert int(first.input_ids.max()) < 50
    assert len(set(np.diff(first.attention.cu_seqlens_cpu).tolist())) >= 3
    worst_cosine(*encoders)
    assert torch.equal(encoders[0].inputs[0].input_ids, encoders[0].inputs[1].input_ids)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flags\t\t: fpu avx512_bf16 amx_bf16 amx_tile\n", True),
        ("flags\t\t: fpu amx_tile amx_bf16\nbugs\t: x\n", True),
        ("flags: amx_bf16", True),
        ("flags\t\t: fpu avx512_bf16 amx_tile\n", False),
        ("flags\t\t: amx_bf16x not_amx_bf16\n", False),
        ("", False),
    ],
)
def test_cpuinfo(tmp_path, text, expected):
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    assert has_amx_bf16(file) is expected


def test_without_cpuinfo(tmp_path):
    assert not has_amx_bf16(tmp_path / "none")


class TestFloat16:
    @pytest.mark.parametrize("architecture", ["PPLXQwen3Model", "PPLXQwen3ContextualModel", "Gemma3TextModel"])
    def test_models_that_are_known_to_overflow(self, architecture):
        with pytest.raises(ConfigError, match=f"dtype: float16: {architecture} overflows in it; use bfloat16"):
            check_float16(architecture)

    @pytest.mark.parametrize("architecture", ["BertModel", "Qwen3Model", "none"])
    def test_others_may_try(self, architecture):
        check_float16(architecture)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_a_probe_that_overflows(self, bad):
        shape = ModelShape(hidden_size=4, head_dim=1, vocab_size=50, max_positions=30)
        seen = []

        def embed(rows):
            seen.extend(rows)
            return np.ones((len(rows), 4), np.float32)

        check_finite(embed, shape)
        assert max(len(row) for row in seen) == 30
        assert max(int(row.max()) for row in seen) < 50
        with pytest.raises(ConfigError, match="dtype: float16: this checkpoint overflows"):
            check_finite(lambda rows: embed(rows) * np.float32(bad), shape)
