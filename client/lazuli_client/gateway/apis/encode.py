"""Vectors as JSON: numbers, or base64 of the bytes that they have in memory.

Takes rows of an array, returns bytes of JSON. Many rows are written in slices, so that small requests need not wait.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from lazuli_client.gateway.replicas.call import Call

# Numbers that are written at a time: about a millisecond.
_SLICE = 32_768


def as_numbers(row: NDArray[Any]) -> bytes:
    """`[0.1,...]`: of each number as few digits as tell it from its neighbours."""
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)


def as_base64(row: NDArray[Any]) -> bytes:
    """A JSON string of the bytes, little-endian, without the copy that `tobytes` makes."""
    return b'"%b"' % pybase64.b64encode(row.data.cast("B"))


async def join_rows(vectors: NDArray[Any], write: Callable[[int, NDArray[Any]], bytes], call: Call) -> bytes:
    """The rows as elements of a JSON list, without the brackets.

    Args:
        vectors: [N, D] or [N, S, D].
        write: From a row's number and the row to JSON.
        call: Whose time it is.
    """
    vectors = np.ascontiguousarray(vectors)
    step = max(1, _SLICE // max(1, vectors[0].size)) if len(vectors) else 1
    pieces = []
    for start in range(0, len(vectors), step):
        if start:
            await asyncio.sleep(0)
        with call.timings.stage("encode"):
            pieces += [write(row, vectors[row]) for row in range(start, min(start + step, len(vectors)))]
    return b",".join(pieces)
