"""The GPU version of `outputs/finish.py` and `outputs/quantize.py`, in the Triton language: a vector in registers.

What becomes of it is one number, the same for the whole program, so all branches here are taken by all threads or none.
"""

import triton
import triton.language as tl

_SMALLEST_NORM = tl.constexpr(1e-12)  # as in torch.nn.functional.normalize
_LARGEST = tl.constexpr(3.4028234663852886e38)  # the largest float32
# The places of `lazuli.options.ENCODINGS`.
_FLOAT32, _FLOAT16 = tl.constexpr(0), tl.constexpr(1)
_INT8, _BINARY = tl.constexpr(2), tl.constexpr(4)
# Added and taken away again, this leaves an integer, rounded as IEEE 754 does it.
_ROUNDER = tl.constexpr(12582912.0)


def block_of(size: int) -> int:
    """BLOCK for vectors of so many dimensions."""
    return max(16, int(triton.next_power_of_2(size)))


@triton.jit
def finish_row(vector, code, ranges, row, size, QUANTIZER: tl.constexpr, BLOCK: tl.constexpr):
    """Cut, scale and encode a vector, and write its row.

    Args:
        vector: [BLOCK] float32; zero from `size` on.
        code: See `lazuli.outputs.finish.Finish`.
        ranges: See `lazuli.outputs.quantize.Quantizer`; read if QUANTIZER says so.
        row: Where it goes, `size` float32.
        size: D.
        QUANTIZER: `native`, `ranges` or `none`.
        BLOCK: From `block_of`.
    """
    columns = tl.arange(0, BLOCK)
    kept = (code >> 4) & 0xFFFFF
    kept = tl.where(kept == 0, size, kept)
    cut = tl.where(columns < kept, vector, 0.0)
    scale = 1.0
    if code & 1:
        norm = tl.sqrt(tl.sum(cut * cut, axis=0))
        # A length that overflows would make a vector of zeros.
        scale = tl.where(norm <= _LARGEST, 1.0 / tl.maximum(norm, _SMALLEST_NORM), float("nan"))
    if code <= 1:
        tl.store(row + columns, cut * scale, mask=columns < size)
    else:
        broken = tl.sum((tl.abs(vector) <= _LARGEST).to(tl.int32), axis=0) < BLOCK
        broken |= not (tl.abs(scale) <= _LARGEST)
        encoding = (code >> 1) & 7
        if (encoding != _FLOAT32) | (kept < size):
            tl.store(row + size - 1, tl.where(broken, float("inf"), 0.0))
        # No integer can show what is not finite, and to convert it is not defined.
        scaled = tl.where(broken, 0.0, cut * scale)
        if encoding == _FLOAT32:
            tl.store(row + columns, scaled, mask=columns < kept)
        elif encoding == _FLOAT16:
            half = row.to(tl.pointer_type(tl.float16), bitcast=True)
            tl.store(half + columns, scaled.to(tl.float16), mask=columns < kept)
        else:
            bytes = row.to(tl.pointer_type(tl.int8), bitcast=True)
            if encoding >= _BINARY:
                _store_bits(bytes, scaled, columns, kept, encoding, QUANTIZER, BLOCK)
            else:
                _store_integers(bytes, scaled, columns, kept, size, code, ranges, QUANTIZER)


@triton.jit
def _store_integers(bytes, scaled, columns, kept, size, code, ranges, QUANTIZER: tl.constexpr):
    """Write int8 or uint8."""
    inside = columns < kept
    if QUANTIZER == "native":
        # 1e-7 off at most, as far as float32 itself rounds.
        power = tl.exp(-2.0 * tl.abs(scaled))
        tanh = tl.math.div_rn(1.0 - power, 1.0 + power)
        values = tl.where(scaled < 0.0, -tanh, tanh) * 127.0
        values = (values + _ROUNDER) - _ROUNDER
        tl.store(bytes + columns, values.to(tl.int32).to(tl.int8), mask=inside)
    elif QUANTIZER == "ranges":
        starts = ranges + (code >> 24).to(tl.int64) * 2 * size
        start = tl.load(starts + columns, mask=inside, other=0.0)
        step = tl.load(starts + size + columns, mask=inside, other=1.0)
        values = tl.minimum(tl.maximum(tl.math.div_rn(scaled - start, step), 0.0), 255.0).to(tl.int32)
        values -= tl.where(((code >> 1) & 7) == _INT8, 128, 0)
        tl.store(bytes + columns, values.to(tl.int8), mask=inside)


@triton.jit
def _store_bits(bytes, scaled, columns, kept, encoding, QUANTIZER: tl.constexpr, BLOCK: tl.constexpr):
    """Write binary or ubinary: eight to a byte, or one in each where that is the model's own way."""
    bits = scaled >= 0.0 if QUANTIZER == "native" else scaled > 0.0
    if (QUANTIZER == "native") & (encoding == _BINARY):
        tl.store(bytes + columns, tl.where(bits, 1, -1).to(tl.int8), mask=columns < kept)
    else:
        worth = tl.where(bits & (columns < kept), 128 >> (columns % 8), 0)
        packed = tl.sum(tl.reshape(worth, (BLOCK // 8, 8)), axis=1)
        packed -= tl.where(encoding == _BINARY, 128, 0)
        places = tl.arange(0, BLOCK // 8)
        tl.store(bytes + places, packed.to(tl.int8), mask=places < kept // 8)
