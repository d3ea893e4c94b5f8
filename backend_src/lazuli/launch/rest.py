"""A few plain HTTP calls to the server with the standard library.

Takes an address and JSON; returns JSON. Closes every connection, since an idle one delays the server's exit.
Does not know what the calls are for.
"""

import http.client
import json
from typing import Any

from lazuli.launch.command import ADMIN_HEADER


class RestError(Exception):
    """The server answered with an error.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def call(
    address: str, method: str, path: str, body: object = None, admin_key: str = "", timeout_s: float = 10.0
) -> Any:
    """Make one call.

    Returns:
        The JSON of the answer; None if it has no body.

    Raises:
        RestError: The server answered with an error.
        OSError: It did not answer (`TimeoutError` if not in time).
    """
    headers = {"Connection": "close", "Content-Type": "application/json"}
    if admin_key:
        headers[ADMIN_HEADER] = admin_key
    raw = _exchange(address, method, path, None if body is None else json.dumps(body), headers, timeout_s)
    return json.loads(raw) if raw else None


def read_text(address: str, path: str, timeout_s: float = 10.0) -> str:
    """Get a page that is plain text.

    Raises:
        RestError, OSError: As `call` does.
    """
    return _exchange(address, "GET", path, None, {"Connection": "close"}, timeout_s).decode()


def _exchange(
    address: str, method: str, path: str, body: str | None, headers: dict[str, str], timeout_s: float
) -> bytes:
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return _checked(response.status, response.read())
    except http.client.HTTPException as error:
        raise ConnectionError(f"not an HTTP answer: {error!r}") from error
    finally:
        connection.close()


def _checked(status: int, raw: bytes) -> bytes:
    if status >= 400:
        raise RestError(status, _error_text(raw) or f"HTTP status {status}")
    return raw


def _error_text(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["error"])
    except (ValueError, KeyError, TypeError):
        return raw.decode(errors="replace").strip()
