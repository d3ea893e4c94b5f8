"""Texts as requests bring them, checked.

Takes a Triton BYTES tensor, returns strings. Knows nothing of tokens.
"""

import numpy as np

from lazuli.errors import InputError

# Of all texts of a request: as much as current versions of Triton take over HTTP. Over gRPC they take 2 GB, which would
# keep a tokenizer from everybody else for half a minute.
MAX_BYTES = 1 << 26


def decode_texts(values: np.ndarray, name: str = "text") -> list[str]:
    """Decode a Triton BYTES tensor [N, 1].

    Args:
        values: The tensor, of bytes or strings.
        name: What error messages call it.

    Returns:
        N strings.

    Raises:
        InputError: If the shape is not [N, 1], there is no row, all rows together are too long, or one of them is not
            valid UTF-8; names row and byte.
    """
    if values.ndim != 2 or values.shape[1] != 1:
        raise InputError(f"{name}: the shape must be [N, 1], one text a row, got {list(values.shape)}")
    if values.shape[0] == 0:
        raise InputError(f"{name}: there is no text; at least 1 row is needed")
    size = sum(map(len, values[:, 0]))
    if size > MAX_BYTES:
        raise InputError(f"{name}: {size} bytes in all rows, but at most {MAX_BYTES} are allowed in one request")
    texts = []
    for row, value in enumerate(values[:, 0]):
        try:
            texts.append(value.decode("utf-8") if isinstance(value, bytes) else str(value))
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise InputError(f"{name}[{row}]: not valid UTF-8, byte 0x{byte:02x} at offset {error.start}") from None
    return texts
