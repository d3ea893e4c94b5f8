"""The shortest way to an endpoint.

Takes POST requests to known paths there; all others go to Starlette's router, whose layers an endpoint that answers its
own errors does not need.
"""

from collections.abc import Awaitable, Callable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response]]


class ShortWay:
    """An ASGI application before another one."""

    def __init__(self, app: Starlette, handlers: Mapping[str, Handler]) -> None:
        """Take what is posted to the paths of `handlers`."""
        self.app = app
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        handler = self._handlers.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if handler is None:
            await self.app(scope, receive, send)
            return
        scope["app"] = self.app
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)
