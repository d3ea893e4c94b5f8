"""The ASGI application of a process.

Takes settings, returns the application; connects to the servers when it starts.
"""

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from lazuli_client.gateway.apis import cohere, health, jina, openai, tei, tei_tokens
from lazuli_client.gateway.apis.endpoint import Endpoint
from lazuli_client.gateway.apis.shapes import JSON, error_response
from lazuli_client.gateway.errors import ApiError
from lazuli_client.gateway.guard.keys import Keys
from lazuli_client.gateway.guard.middleware import Guard
from lazuli_client.gateway.metrics import Metrics
from lazuli_client.gateway.openapi import document
from lazuli_client.gateway.replicas.pool import Pool
from lazuli_client.gateway.replicas.replica import Replica
from lazuli_client.gateway.replicas.watch import Watch
from lazuli_client.gateway.replicas.wire import GrpcWire, Wire
from lazuli_client.gateway.routes import ShortWay
from lazuli_client.gateway.settings import ENVIRONMENT, GatewaySettings
from lazuli_client.gateway.state import Gateway
from lazuli_client.gateway.work.models import Models
from lazuli_client.gateway.work.service import Service

ENDPOINTS: tuple[Endpoint[Any], ...] = (
    openai.EMBEDDINGS,
    cohere.EMBED,
    cohere.RERANK,
    jina.RERANK_V1,
    jina.RERANK,
    tei.EMBED,
    tei.EMBED_SPARSE,
    tei.PREDICT,
    tei_tokens.TOKENIZE,
    tei.EMBED_ROOT,
)
_PAGES = Path(__file__).parent / "page"
_PAGE_FILES = {
    "/": "index.html",
    "/docs": "docs.html",
    "/page/index.js": "index.js",
    "/page/docs.js": "docs.js",
    "/page/style.css": "style.css",
}
_MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


def from_environment() -> ASGIApp:
    """The application of a worker process, which the command has told its settings."""
    app = create(msgspec.json.decode(os.environ[ENVIRONMENT], type=GatewaySettings))
    gc.freeze()  # what was imported stays; to look through it for garbage takes 20 ms each time
    return app


def create(settings: GatewaySettings, connect: Callable[[str], Wire] = GrpcWire) -> ASGIApp:
    """The application.

    Args:
        settings: What it is told.
        connect: From host:port to a connection; called inside the event loop.

    Raises:
        ValueError: If keys or tokenizers cannot be read.
    """
    keys, metrics, models = Keys.read(settings.api_keys_file), Metrics(), Models(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        pool = Pool(settings.bulk_tokens)
        pool.replicas += [Replica(address, connect(address), pool.changed) for address in settings.replicas]
        app.state.gateway = Gateway(settings, pool, models, Service(settings, pool), metrics)
        interval_s, timeout_s = settings.probe_interval_s, settings.probe_timeout_s
        watches = [Watch(replica, pool, models, interval_s, timeout_s) for replica in pool.replicas]
        watchers = [asyncio.create_task(one.run()) for one in watches]
        await _first_answers(pool, settings.probe_timeout_s)
        yield
        await guard.last_answers()
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        await pool.close()

    routes = [Route(endpoint.path, endpoint, methods=["POST"]) for endpoint in ENDPOINTS]
    routes += [
        Route("/v1/models", openai.models),
        Route("/v1/models/{name:path}", openai.model),
        Route("/info", tei_tokens.info),
        Route("/openapi.json", _openapi(document(ENDPOINTS))),
        *(Route(path, _page(name)) for path, name in _PAGE_FILES.items()),
        Route("/health", health.health),
        Route("/metrics", health.metrics),
    ]
    starlette = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _http_error})
    paths = frozenset(route.path for route in routes)
    short_way = ShortWay(starlette, {endpoint.path: endpoint for endpoint in ENDPOINTS})
    guard = Guard(short_way, settings, keys, metrics, paths)
    app: ASGIApp = guard
    if settings.cors_origins:
        app = CORSMiddleware(
            app, allow_origins=settings.cors_origins, allow_methods=["GET", "POST"], allow_headers=["*"],
            expose_headers=["X-Request-Id", "Server-Timing", "Retry-After"],
        )  # fmt: skip
    return app


async def _first_answers(pool: Pool, timeout_s: float) -> None:
    """Wait until every model has answered, but not for long: those that are not there must not keep the others."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not all(replica.problems and not any(replica.problems.values()) for replica in pool.replicas):
                await asyncio.sleep(0.05)


def _openapi(content: object) -> Callable[[Request], Awaitable[Response]]:
    body = msgspec.json.encode(content)

    async def openapi(request: Request) -> Response:
        return Response(body, media_type=JSON)

    return openapi


def _page(name: str) -> Callable[[Request], Awaitable[Response]]:
    """A static file, read once; it may load nothing from elsewhere."""
    body, kind = (_PAGES / name).read_bytes(), _MEDIA_TYPES[Path(name).suffix]

    async def page(request: Request) -> Response:
        return Response(body, headers={"Content-Security-Policy": "default-src 'self'; img-src data:"}, media_type=kind)

    return page


async def _http_error(request: Request, error: Exception) -> Response:
    """What Starlette says of paths and methods, in the shape of the API."""
    assert isinstance(error, HTTPException)
    response = error_response(ApiError(error.status_code, error.detail, "invalid_request_error"), request.url.path)
    response.headers.update(error.headers or {})
    return response
