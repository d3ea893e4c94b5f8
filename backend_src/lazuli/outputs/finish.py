"""What becomes of a pooled vector: cut, scaled to unit length, encoded.

Takes vectors with one number for each that says it, returns rows of bytes. Knows nothing of requests. The number goes
to the device with the other inputs, so the same CUDA graph serves requests that want different things.

Whatever is asked for, the result is a row of D float32 that holds the encoded vector's bytes from its start on. Where
that leaves the row's last float32 free, it is zero if all of the vector was finite, else infinite: what was computed
from a NaN need not look like one.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from lazuli.options import ENCODINGS
from lazuli.outputs.quantize import Quantizer, encode

# The code of a vector of full length, scaled, in float32.
NORMALIZED = 1
_SMALLEST_NORM = 1e-12  # as in torch.nn.functional.normalize
_ENCODING_SHIFT, _ENCODING_MASK = 1, 7
_DIMENSIONS_SHIFT, _DIMENSIONS_MASK = 4, (1 << 20) - 1
_RANGES_SHIFT, _RANGES_MASK = 24, 127


@dataclass(frozen=True)
class Finish:
    """What becomes of one vector.

    Attributes:
        normalize: Whether it is scaled to unit length, after it was cut.
        encoding: One of `lazuli.options.ENCODINGS`.
        dimensions: How many leading values are kept; 0 for all.
        ranges: Which of the quantiser's ranges `int8` and `uint8` use.
    """

    normalize: bool
    encoding: str = "float32"
    dimensions: int = 0
    ranges: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.dimensions <= _DIMENSIONS_MASK, self.dimensions
        assert 0 <= self.ranges <= _RANGES_MASK, self.ranges

    @cached_property
    def code(self) -> int:
        """All of it as one int32."""
        return (
            int(self.normalize)
            | ENCODINGS.index(self.encoding) << _ENCODING_SHIFT
            | self.dimensions << _DIMENSIONS_SHIFT
            | self.ranges << _RANGES_SHIFT
        )

    @classmethod
    def from_code(cls, code: int) -> "Finish":
        """What a code means."""
        return cls(
            bool(code & 1),
            ENCODINGS[code >> _ENCODING_SHIFT & _ENCODING_MASK],
            code >> _DIMENSIONS_SHIFT & _DIMENSIONS_MASK,
            code >> _RANGES_SHIFT & _RANGES_MASK,
        )


def finish(vectors: torch.Tensor, codes: torch.Tensor, quantizer: Quantizer) -> torch.Tensor:
    """Cut, scale and encode each vector as its code says. Does not synchronise a GPU.

    Args:
        vectors: [B, D].
        codes: [B] int32, same device.
        quantizer: Of the model.

    Returns:
        [B, D] float32: see the top of this module.
    """
    if vectors.is_cuda:
        from lazuli.triton_kernels import pooling

        return pooling.finish(vectors, codes, quantizer)
    exact = vectors.float()
    least, most = (int(bound) for bound in codes.aminmax())
    if least == most == NORMALIZED:
        return normalize(exact)
    if most <= NORMALIZED:
        return torch.where((codes != 0).unsqueeze(1), normalize(exact), exact)
    output = torch.zeros_like(exact)
    for code in codes.unique().tolist():
        chosen = codes == code
        output[chosen] = _finish_alike(exact[chosen], Finish.from_code(code), quantizer)
    return output


def normalize(vectors: torch.Tensor) -> torch.Tensor:
    """Scale [..., D] float32 to unit length; one whose length overflows becomes NaN, not zero."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(lengths.isfinite(), lengths.clamp(min=_SMALLEST_NORM), torch.nan)


def _finish_alike(vectors: torch.Tensor, chosen: Finish, quantizer: Quantizer) -> torch.Tensor:
    """The rows of vectors that all want the same, [K, D] float32."""
    size = vectors.shape[1]
    cut = vectors[:, : chosen.dimensions or size]
    scaled = normalize(cut) if chosen.normalize else cut
    encoded = encode(scaled, chosen.encoding, quantizer, chosen.ranges).view(torch.uint8)
    output = torch.zeros(len(vectors), size)
    if encoded.shape[1] < output.itemsize * size:
        finite = vectors.isfinite().all(dim=1) & scaled.isfinite().all(dim=1)
        output[:, -1] = torch.where(finite, 0.0, torch.inf)
    output.view(torch.uint8)[:, : encoded.shape[1]] = encoded
    return output
