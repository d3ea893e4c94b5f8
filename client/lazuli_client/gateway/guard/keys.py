"""API keys.

Takes the headers of a request, returns a name for its key that tells nothing of it. Reads keys from a file or the
environment, once.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

ENVIRONMENT = "LAZULI_GATEWAY_API_KEYS"
_LEAST_LENGTH = 8


class Keys:
    """The keys that open the gateway; without any it is open to all."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Keep digests of the keys.

        Raises:
            ValueError: If a key is too short to be one.
        """
        self._digests: dict[bytes, str] = {}
        for key in keys:
            if len(key) < _LEAST_LENGTH:
                raise ValueError(f"api key: {len(key)} characters, but at least {_LEAST_LENGTH} are needed")
            digest = _digest(key.encode())
            self._digests[digest] = digest.hex()[:8]

    @classmethod
    def read(cls, path: str | None, environment: Mapping[str, str] = os.environ) -> "Keys":
        """The keys of a file, one a line, and those in `LAZULI_GATEWAY_API_KEYS` with commas between.

        Raises:
            ValueError: If the file cannot be read or holds no key: an empty one must not open the gateway.
        """
        keys = [key.strip() for key in environment.get(ENVIRONMENT, "").split(",") if key.strip()]
        if path is None:
            return cls(keys)
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"api_keys_file: {path} cannot be read: {error}") from None
        found = [key for line in lines if (key := line.strip()) and not key.startswith("#")]
        if not found:
            raise ValueError(f"api_keys_file: there is no key in {path}")
        return cls([*keys, *found])

    def __bool__(self) -> bool:
        return bool(self._digests)

    def name_of(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The name of the key in `Authorization: Bearer`, `x-api-key` or `api-key`; None if it is none of ours.

        Every key is compared, and digests of equal length, so the time tells nothing.
        """
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key") or headers.get(b"api-key")
        digest = _digest(given or b"")
        name = None
        for known, its_name in self._digests.items():
            if hmac.compare_digest(known, digest):
                name = its_name
        return name


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
