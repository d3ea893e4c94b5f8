"""`/health`, `/metrics` and `/openapi.json`."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from lazuli_client.gateway.apis.shapes import JSON
from lazuli_client.gateway.metrics import CONTENT_TYPE
from lazuli_client.gateway.state import Gateway


async def health(request: Request) -> Response:
    """200 while a server answers, else 503; each with the state of the servers."""
    gateway: Gateway = request.app.state.gateway
    fit = gateway.pool.fit()
    body = {
        "status": "ok" if fit else "no server is ready",
        "servers_ready": len(fit),
        "servers": len(gateway.pool.replicas),
    }
    return Response(orjson.dumps(body), 200 if fit else 503, media_type=JSON)


async def metrics(request: Request) -> Response:
    """The figures for Prometheus."""
    gateway: Gateway = request.app.state.gateway
    gateway.metrics.note_servers(gateway.pool)
    return Response(gateway.metrics.text(), headers={"Content-Type": CONTENT_TYPE})
