"""How Triton-language products are cut for a layer's size and a number of tokens.

Reads `linear_tilings.json`, which `perf/tune_linear.py` measured; for layers that are not in it, takes a rule of thumb.
"""

import json
from functools import cache
from importlib.resources import files

from lazuli.triton_kernels.matmul import Blocks
from lazuli.triton_kernels.products import Tiling

_Key = tuple[str, int, int]


def choose_tiling(
    kind: str, num_outputs: int, size: int, num_tokens: int, shared_memory: int, outputs: int | None = None
) -> Tiling:
    """The tiling of a kernel.

    Args:
        kind: Name of the function in `lazuli.fused_linear`.
        num_outputs: N.
        size: K.
        num_tokens: T.
        shared_memory: Bytes that a program may use on this GPU.
        outputs: Outputs of a block, where the kernel leaves no choice.
    """
    products = 2 if kind in ("norm_qkv", "norm_gate_up") else 1
    measured = _measured().get((kind, num_outputs, size))
    if measured is not None:
        most = min((tokens for tokens in measured if tokens >= num_tokens), default=max(measured))
        tiling = measured[most]
        assert isinstance(tiling, Tiling), "a kernel for few tokens"
        if outputs in (None, tiling.outputs) and tiling.shared_memory(products) <= shared_memory:
            return tiling
    return _rule_of_thumb(num_outputs, size, num_tokens, outputs, products, shared_memory)


def choose_blocks(activation: str, num_outputs: int, size: int, num_tokens: int) -> Blocks | None:
    """The blocks of `lazuli.triton_kernels.matmul`; None where the library was quicker, or nothing was measured.

    Args:
        activation: As there.
        num_outputs: N.
        size: K.
        num_tokens: T.
    """
    measured = _measured().get((activation, num_outputs, size), {})
    least = max((tokens for tokens in measured if tokens <= num_tokens), default=None)
    blocks = None if least is None else measured[least]
    assert blocks is None or isinstance(blocks, Blocks), "an activation of products for many tokens"
    return blocks


def _rule_of_thumb(
    num_outputs: int, size: int, num_tokens: int, outputs: int | None, products: int, shared_memory: int
) -> Tiling:
    """Some 64 to 128 programs, each with a few blocks of inputs."""
    tokens = min(max(16, 1 << (num_tokens - 1).bit_length()), 64)
    if outputs is None:
        outputs = 32 if num_outputs >= 3072 else 16
    splits = 2 if size >= 2048 and size % 256 == 0 else 1
    # The blocks on their way must fit: fewer of them, then smaller ones.
    candidates = [
        Tiling(tokens, outputs, inputs, splits, stages=stages)
        for inputs in ((128, 64, 32) if tokens <= 32 else (64, 32))
        for stages in (4, 3, 2)
    ]
    fitting = (tiling for tiling in candidates if tiling.shared_memory(products) <= shared_memory)
    return next(fitting, candidates[-1])


@cache
def _measured() -> dict[_Key, dict[int, Tiling | Blocks | None]]:
    """(kind, N, K) to tilings by the number of tokens that each was measured for."""
    path = files("lazuli") / "linear_tilings.json"
    table: dict[_Key, dict[int, Tiling | Blocks | None]] = {}
    for entry in json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []:
        key = (entry["kind"], entry["num_outputs"], entry["size"])
        tiling = Tiling(**entry["tiling"]) if "tiling" in entry else None
        blocks = Blocks(**entry["blocks"]) if entry.get("blocks") else None
        table.setdefault(key, {})[entry["num_tokens"]] = tiling or blocks
    return table
