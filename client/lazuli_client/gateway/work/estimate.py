"""How many tokens a request has, where the server tokenises: told by its bytes.

Takes requests, returns tokens; learns from answers how many bytes a token has. Does not know pools.
"""

import numpy as np

from lazuli_client.request import EmbedRequest

# English in most vocabularies; other scripts teach another number soon.
_FIRST_BYTES_PER_TOKEN = 4.0
_MEMORY = 0.98
# What one request teaches is limited: a long one, or one of nothing but spaces, must not change it for all others.
_LEAST_BYTES_PER_TOKEN, _MOST_BYTES_PER_TOKEN = 1.0, 16.0
_MOST_BYTES = 16_384


class TokenEstimate:
    """Bytes and tokens of one model."""

    def __init__(self) -> None:
        self._bytes = _FIRST_BYTES_PER_TOKEN * 64
        self._tokens = 64.0

    @property
    def bytes_per_token(self) -> float:
        """What the texts of late had."""
        return self._bytes / self._tokens

    def tokens_of_bytes(self, size: int) -> int:
        """Tokens of a text, or several, of so many bytes; at least one."""
        return 1 + int(size / self.bytes_per_token)

    def learn(self, size: int, tokens: int) -> None:
        """Take note of what texts of so many bytes had."""
        bytes_per_token = min(max(size / max(tokens, 1), _LEAST_BYTES_PER_TOKEN), _MOST_BYTES_PER_TOKEN)
        size = min(size, _MOST_BYTES)
        self._bytes = _MEMORY * self._bytes + size
        self._tokens = _MEMORY * self._tokens + size / bytes_per_token

    def tokens_of(self, request: EmbedRequest) -> int:
        """Tokens of a request: counted if it has them, else estimated."""
        mask = request.tensors.get("attention_mask")
        if mask is not None:
            return int(np.count_nonzero(mask))
        return self.tokens_of_bytes(text_bytes(request))


def text_bytes(request: EmbedRequest) -> int:
    """Bytes of all texts of a request."""
    return sum(sum(map(len, column[:, 0])) for column in request.tensors.values())
