"""`/health` and `/metrics`."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from lazuli_client.gateway.apis.shapes import JSON, error_response
from lazuli_client.gateway.errors import ApiError
from lazuli_client.gateway.metrics import CONTENT_TYPE
from lazuli_client.gateway.settings import GatewaySettings
from lazuli_client.gateway.state import Gateway


async def health(request: Request) -> Response:
    """200 while a model has a server, else 503; with `?model=NAME` while that one has. Each with the state of all."""
    gateway: Gateway = request.app.state.gateway
    pool, wanted = gateway.pool, request.query_params.get("model")
    if wanted is not None:
        wanted = gateway.settings.aliases.get(wanted, wanted)
        if wanted not in gateway.settings.models:
            missing = ApiError(404, f"model: {wanted!r} is not offered", "model_not_found", field="model")
            return error_response(missing, request.url.path)
    models = {model: {"servers_ready": len(pool.fit(model))} for model in gateway.settings.models}
    is_well = bool(pool.fit(wanted))
    # Those that are offered by default need not be there; those that were named must.
    is_default = gateway.settings.models == GatewaySettings().models
    needed = [model.name for model in gateway.models] if is_default else gateway.settings.models
    status = "ok" if all(map(pool.fit, needed)) else "some models have no server"
    body = {
        "status": status if is_well else f"no server is ready{'' if wanted is None else ' for that model'}",
        "servers_ready": len(pool.fit()),
        "servers": len(pool.replicas),
        "models": models,
    }
    return Response(orjson.dumps(body), 200 if is_well else 503, media_type=JSON)


async def metrics(request: Request) -> Response:
    """The figures for Prometheus."""
    gateway: Gateway = request.app.state.gateway
    gateway.metrics.note_servers(gateway.pool)
    return Response(gateway.metrics.text(), headers={"Content-Type": CONTENT_TYPE})
