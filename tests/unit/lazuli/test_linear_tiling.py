"""The table of cuts, and the rule for layers that are not in it."""

import json
from importlib.resources import files

import pytest

pytest.importorskip("triton")

from lazuli.linear_tiling import choose_blocks, choose_tiling
from lazuli.triton_kernels.products import Tiling

HOPPER, SMALL = 232_448, 101_376  # bytes of shared memory: an H200, an L4
ENTRIES = json.loads((files("lazuli") / "linear_tilings.json").read_text(encoding="utf-8"))
FEW = [entry for entry in ENTRIES if "tiling" in entry]
KINDS = {"norm_qkv": 2, "norm_gate_up": 2, "linear_add": 1, "layer_norm_linear": 1}
# N and K of Qwen3-0.6B and -4B, XLM-RoBERTa base and large, MiniLM; head_dim / 2 where the kernel needs it.
LAYERS = [
    *[
        ("norm_qkv", outputs, size, half)
        for outputs, size, half in ((4096, 1024, 64), (6144, 2560, 64), (4096, 1024, 32))
    ],
    *[("norm_gate_up", outputs, size, None) for outputs, size in ((3072, 1024), (9728, 2560))],
    *[
        ("linear_add", outputs, size, None)
        for outputs, size in ((1024, 2048), (1024, 3072), (2560, 9728), (384, 1536), (768, 768))
    ],
    *[
        ("layer_norm_linear", outputs, size, None)
        for outputs, size in ((3072, 1024), (4096, 1024), (1152, 384), (2304, 768))
    ],
]


def divides(tiling, num_outputs, size):
    return size % (tiling.splits * tiling.inputs) == 0 and num_outputs % tiling.outputs == 0


@pytest.mark.parametrize(
    "entry", FEW, ids=lambda entry: f"{entry['kind']}-{entry['num_outputs']}-{entry['size']}-{entry['num_tokens']}"
)
def test_each_entry_divides_its_layer_and_fits(entry):
    tiling = Tiling(**entry["tiling"])
    assert divides(tiling, entry["num_outputs"], entry["size"])
    assert 1 <= tiling.splits <= 4
    assert tiling.tokens * tiling.outputs >= 256
    assert tiling.shared_memory(KINDS[entry["kind"]]) <= HOPPER


@pytest.mark.parametrize("shared_memory", [HOPPER, SMALL])
@pytest.mark.parametrize("num_tokens", [1, 7, 16, 33, 64, 100, 128])
@pytest.mark.parametrize(("kind", "num_outputs", "size", "outputs"), LAYERS)
def test_whatever_is_chosen_divides_the_layer_and_fits(kind, num_outputs, size, outputs, num_tokens, shared_memory):
    tiling = choose_tiling(kind, num_outputs, size, num_tokens, shared_memory, outputs)
    assert divides(tiling, num_outputs, size)
    assert tiling.shared_memory(KINDS[kind]) <= shared_memory
    assert outputs in (None, tiling.outputs)
    assert 1 <= tiling.splits <= 4


def test_a_measured_cut_is_taken_for_as_many_tokens_or_fewer():
    measured = {entry["num_tokens"]: Tiling(**entry["tiling"]) for entry in FEW if entry["kind"] == "norm_gate_up"}
    assert choose_tiling("norm_gate_up", 3072, 1024, 17, HOPPER) == measured[32]
    assert choose_tiling("norm_gate_up", 3072, 1024, 16, HOPPER) == measured[16]


def test_blocks_for_many_tokens():
    assert choose_blocks("silu_multiply", 6144, 1024, 100) is None
    assert choose_blocks("silu_multiply", 6144, 1024, 12800) is not None
    assert choose_blocks("silu_multiply", 6144, 1000, 12800) is None
