"""One line of JSON for each request: what was asked for and how it went, and nothing of what the texts say."""

import logging

import orjson

from lazuli_client.gateway.replicas.call import Call

_log = logging.getLogger("lazuli_client.gateway.access")


def log_request(call: Call, method: str, path: str, status: int, seconds: float, key: str | None) -> None:
    """Write the line."""
    if not _log.isEnabledFor(logging.INFO):
        return
    line = {
        "request_id": call.request_id,
        "method": method,
        "path": path,
        "status": status,
        "ms": round(seconds * 1e3, 3),
        "rows": call.rows,
        "tokens": call.tokens,
        "key": key,
        "stages_ms": {name: round(value * 1e3, 3) for name, value in call.timings.seconds.items()},
    }
    _log.info(orjson.dumps(line).decode())
