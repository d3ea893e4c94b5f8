"""Linear layers for few tokens on a GPU, one kernel each, with the norm before and what comes after.

Takes and returns torch tensors; weights are [N, K] as in checkpoints. What a norm divides by is found out on the way,
but its scale must be in the data already: in the weights after an RMS norm, in the stream before a layer norm, whose
result is needed a second time as a residual. Knows nothing of models. What each function computes is spelt out in torch
in `tests/unit/lazuli/triton_kernels/test_linear.py`.
"""

from typing import Any

import torch
import triton

from lazuli.layers.stream import Stream
from lazuli.linear_tiling import choose_tiling
from lazuli.triton_kernels import linear as kernels
from lazuli.triton_kernels.early import launch_options
from lazuli.triton_kernels.products import Tiling

_MOST_SPLITS = 4
_SMALLEST_BLOCK = 16 * 16
_MAX_TOKENS = 128  # above, separate kernels around the products of the library are quicker


class Workspace:
    """Where programs that share a result meet, and what they may use; one for all layers of a model, on one stream.

    The counters are zero between kernels: whoever counts last resets its own.
    """

    def __init__(self, device: torch.device, max_outputs: int, max_tokens: int = _MAX_TOKENS) -> None:
        """Allocate for weights of at most `max_outputs` rows, and at most so many tokens, a multiple of 64."""
        self.max_tokens = max_tokens
        self.partial = torch.empty(_MOST_SPLITS * max_outputs * max_tokens, device=device)
        self.counter = torch.zeros(max_outputs * max_tokens // _SMALLEST_BLOCK, dtype=torch.int32, device=device)
        self.shared_memory = _read_shared_memory(device)


def norm_qkv(
    stream: Stream,
    weight: torch.Tensor,
    head_weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor,
    eps: float,
    workspace: Workspace,
) -> torch.Tensor:
    """RMS norm, projection to heads, and for queries and keys the norm and the rotation of each head.

    Args:
        stream: [T, K].
        weight: [N, K]: the rows of all heads, multiplied by the scale of the norm.
        head_weight: [R, head_dim]: the scales of the first R heads, which are the rotated ones.
        cos: [P, head_dim / 2] float32.
        sin: [P, head_dim / 2] float32.
        position_ids: [T] int32, below P.
        eps: Added to each mean square.
        workspace: Of the model.

    Returns:
        [T, N].
    """
    hidden = stream.values
    num_outputs, size = weight.shape
    num_rotated, head_dim = head_weight.shape
    output = hidden.new_empty((len(hidden), num_outputs))
    memory = workspace.shared_memory
    tiling = choose_tiling("norm_qkv", num_outputs, size, len(hidden), memory, outputs=head_dim // 2)
    tensors = [hidden, stream.sums, weight, output, head_weight, cos, sin, position_ids]
    numbers = [len(hidden), num_rotated, num_outputs, eps]
    grid = (triton.cdiv(len(hidden), tiling.tokens), num_outputs // head_dim)
    _launch(kernels.norm_qkv_kernel, grid, tiling, size, tensors, numbers, workspace, PARTS=stream.sums.shape[2])
    return output


def norm_gate_up(stream: Stream, weight: torch.Tensor, eps: float, workspace: Workspace) -> torch.Tensor:
    """RMS norm, two projections, and silu(gate) * up.

    Args:
        stream: [T, K].
        weight: [2 I, K]: rows of gates and ups take turns; multiplied by the scale of the norm.
        eps: Added to the mean square.
        workspace: Of the model.

    Returns:
        [T, I].
    """
    hidden = stream.values
    num_outputs, size = weight.shape[0] // 2, weight.shape[1]
    output = hidden.new_empty((len(hidden), num_outputs))
    tiling = choose_tiling("norm_gate_up", num_outputs, size, len(hidden), workspace.shared_memory)
    grid = (triton.cdiv(len(hidden), tiling.tokens), num_outputs // tiling.outputs)
    tensors, numbers = [hidden, stream.sums, weight, output], [len(hidden), num_outputs, eps]
    _launch(kernels.norm_gate_up_kernel, grid, tiling, size, tensors, numbers, workspace, PARTS=stream.sums.shape[2])
    return output


def linear_add(tokens: torch.Tensor, weight: torch.Tensor, residual: Stream, workspace: Workspace) -> Stream:
    """A projection, added to the residual.

    Args:
        tokens: [T, K].
        weight: [N, K].
        residual: [T, N].
        workspace: Of the model.

    Returns:
        [T, N].
    """
    nothing = residual.sums  # for pointers that the kernel does not follow
    return _linear_add(tokens, weight, residual, [nothing] * 4, 0.0, workspace, layer_norm=False)


def linear_add_layer_norm(
    tokens: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: Stream,
    norm_weight: torch.Tensor,
    norm_bias: torch.Tensor,
    eps: float,
    next_norm_weight: torch.Tensor,
    workspace: Workspace,
) -> Stream:
    """A projection with its bias, added to the layer norm of the residual.

    Args:
        tokens: [T, K].
        weight: [N, K].
        bias: [N].
        residual: [T, N], before its norm, multiplied by its scale; the sums are those before that.
        norm_weight: [N].
        norm_bias: [N].
        eps: Added to the variance.
        next_norm_weight: [N], the scale of the norm that follows.
        workspace: Of the model.

    Returns:
        [T, N], before that norm, multiplied by its scale; the sums are those before that.
    """
    norm = [bias, norm_weight, norm_bias, next_norm_weight]
    return _linear_add(tokens, weight, residual, norm, eps, workspace, layer_norm=True)


def _linear_add(
    tokens: torch.Tensor,
    weight: torch.Tensor,
    residual: Stream,
    norm: list[torch.Tensor],
    eps: float,
    workspace: Workspace,
    *,
    layer_norm: bool,
) -> Stream:
    num_outputs, size = weight.shape
    output = torch.empty_like(residual.values)
    tiling = choose_tiling("linear_add", num_outputs, size, len(tokens), workspace.shared_memory)
    grid = (triton.cdiv(len(tokens), tiling.tokens), num_outputs // tiling.outputs)
    sums = output.new_empty((len(tokens), 2, grid[1]), dtype=torch.float32)
    tensors = [tokens, weight, residual.values, output, sums, *norm, residual.sums]
    constants = {"WIDTH": num_outputs, "PARTS": residual.sums.shape[2], "LAYER_NORM": layer_norm}
    numbers = [len(tokens), num_outputs, eps]
    _launch(kernels.linear_add_kernel, grid, tiling, size, tensors, numbers, workspace, **constants)
    return Stream(output, sums)


def layer_norm_linear(
    stream: Stream,
    weight: torch.Tensor,
    slope: torch.Tensor,
    offset: torch.Tensor,
    eps: float,
    workspace: Workspace,
    *,
    gelu: bool,
) -> torch.Tensor:
    """Layer norm, projection with its bias, and perhaps GELU (the exact one).

    With x normalised to (x - m) s g + b, the product is s (x g W - m slope) + offset: so it can be computed before m
    and s are known.

    Args:
        stream: [T, K], x g; the sums are those of x.
        weight: [N, K], W.
        slope: [N] float32, g W.
        offset: [N] float32, b W plus the bias of the layer.
        eps: Added to the variance.
        workspace: Of the model.
        gelu: Whether the activation follows.

    Returns:
        [T, N].
    """
    hidden = stream.values
    num_outputs, size = weight.shape
    output = hidden.new_empty((len(hidden), num_outputs))
    tiling = choose_tiling("layer_norm_linear", num_outputs, size, len(hidden), workspace.shared_memory)
    grid = (triton.cdiv(len(hidden), tiling.tokens), num_outputs // tiling.outputs)
    tensors = [hidden, stream.sums, weight, slope, offset, output]
    constants = {"PARTS": stream.sums.shape[2], "GELU": gelu}
    numbers = [len(hidden), num_outputs, eps]
    _launch(kernels.layer_norm_linear_kernel, grid, tiling, size, tensors, numbers, workspace, **constants)
    return output


def _launch(
    kernel: Any,
    grid: tuple[int, int],
    tiling: Tiling,
    size: int,
    tensors: list[torch.Tensor],
    numbers: list[float],
    workspace: Workspace,
    **constants: int,
) -> None:
    assert all(tensor.is_contiguous() for tensor in tensors), "rows are found by their number"
    assert len(tensors[0]) <= workspace.max_tokens, "more tokens go another way"
    assert size % (tiling.splits * tiling.inputs) == 0, "a block would reach into the next row"
    arguments = [*tensors, workspace.partial, workspace.counter, *numbers]
    lines = triton.next_power_of_2(triton.cdiv(size // tiling.splits * 2, 128))
    options = tiling.options() | launch_options(tensors[0].device)
    kernel[(*grid, tiling.splits)](*arguments, SIZE=size, LINES=lines, **constants, **options)


def _read_shared_memory(device: torch.device) -> int:
    """Bytes of it that a program may use."""
    if device.type != "cuda":  # the interpreter
        return 1 << 30
    index = device.index if device.index is not None else torch.cuda.current_device()
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])
