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
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return _answer(response.status, response.read())
    except http.client.HTTPException as error:
        raise ConnectionError(f"not an HTTP answer: {error!r}") from error
    finally:
        connection.close()


def _answer(status: int, raw: bytes) -> Any:
    if status >= 400:
        raise RestError(status, _error_text(raw) or f"HTTP status {status}")
    return json.loads(raw) if raw else None


def _error_text(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["error"])
    except (ValueError, KeyError, TypeError):
        return raw.decode(errors="replace").strip()
