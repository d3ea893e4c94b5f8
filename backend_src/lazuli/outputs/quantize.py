"""Vectors in fewer bytes: the formulas, in torch on a CPU, and what a model has to say to them.

Takes float32 vectors, returns their encoded values. The GPU's version is in `triton_kernels/finishing.py`. Knows
nothing of requests.

With a quantiser of its own (Perplexity's models) a model is trained to be rounded: int8 is round(127 tanh(x)), binary
the sign of x, and zero counts as positive. For others the range that each dimension has over typical texts is divided
into 255 steps, and uint8 is the number of those below x, int8 is 128 less, as in sentence-transformers 6; what lies
outside becomes the outermost value. Their binary encodings have a 1 for each positive value.
"""

from dataclasses import dataclass, field

import torch

_STEPS = 255
_BITS = (128, 64, 32, 16, 8, 4, 2, 1)  # the first value is the highest bit


@dataclass(frozen=True)
class Quantizer:
    """What decides how vectors of one model are quantised.

    Attributes:
        native: Whether the model has a quantiser of its own.
        ranges: [R, 2, D] float32: for each of R ranges, which a code chooses from, the value of each dimension at which
            the steps begin and the size of a step. Empty where there are none.
    """

    native: bool = False
    ranges: torch.Tensor = field(default_factory=lambda: torch.empty(0, 2, 0))


def make_ranges(minimum: torch.Tensor, maximum: torch.Tensor, size: int) -> torch.Tensor:
    """One entry of `Quantizer.ranges`, [2, size] float32.

    Args:
        minimum: [D'] float32, the least value of each dimension; D' <= size.
        maximum: [D'] float32, the greatest. Where it is the same, all values become that of the least.
        size: D of the model.
    """
    ranges = torch.ones(2, size)
    ranges[0, : len(minimum)] = minimum
    ranges[1, : len(minimum)] = torch.where(maximum > minimum, (maximum - minimum) / _STEPS, 1.0)
    return ranges


def encode(vectors: torch.Tensor, encoding: str, quantizer: Quantizer, ranges: int = 0) -> torch.Tensor:
    """Encode vectors on the CPU.

    Args:
        vectors: [K, D'] float32.
        encoding: One of `lazuli.options.ENCODINGS`.
        quantizer: Of the model.
        ranges: Which of its ranges, for int8 and uint8.

    Returns:
        [K, D'] float32, float16, int8 or uint8; of packed bits [K, D' / 8] int8 or uint8.
    """
    if encoding == "float32":
        return vectors.contiguous()
    if encoding == "float16":
        return vectors.half()
    vectors = vectors.nan_to_num()  # the host learns of those in another way, and no integer can show them
    if encoding in ("binary", "ubinary"):
        return _encode_bits(vectors, encoding, quantizer.native)
    if quantizer.native:
        return (torch.tanh(vectors) * 127).round().to(torch.int8)
    start, step = quantizer.ranges[ranges, :, : vectors.shape[1]].unbind()
    steps = ((vectors - start) / step).clamp(0, _STEPS).to(torch.uint8)
    return steps if encoding == "uint8" else (steps.to(torch.int16) - 128).to(torch.int8)


def _encode_bits(vectors: torch.Tensor, encoding: str, native: bool) -> torch.Tensor:
    bits = vectors >= 0 if native else vectors > 0
    if native and encoding == "binary":
        return torch.where(bits, 1, -1).to(torch.int8)
    packed = (bits.view(len(bits), -1, len(_BITS)) * torch.tensor(_BITS)).sum(dim=2)
    return packed.to(torch.uint8) if encoding == "ubinary" else (packed - 128).to(torch.int8)
