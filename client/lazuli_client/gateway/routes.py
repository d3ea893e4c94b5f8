"""The shortest way to an endpoint.

Takes POST requests to known paths there; all others go to Starlette's router, whose layers an endpoint that answers its
own errors does not need.
"""

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send


class ShortWay:
    """An ASGI application before another one."""

    def __init__(self, app: Starlette, endpoints: Mapping[str, ASGIApp]) -> None:
        """Take what is posted to the paths of `endpoints`."""
        self.app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._endpoints.get(scope["path"]) if is_post else None
        if endpoint is None:
            await self.app(scope, receive, send)
            return
        scope["app"] = self.app
        await endpoint(scope, receive, send)
