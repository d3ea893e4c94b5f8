"""The least that a gateway of this kind can do: uvicorn in front, gRPC behind, and nothing between.

Takes the bytes of a `ModelInferRequest`, returns those of its answer. What the gateway takes beyond this is its own:

    LAZULI_SERVER=127.0.0.1:8001 uvicorn --app-dir perf --port 8090 --no-access-log breakdown.passing_on:app
"""

import os
from typing import Any

import grpc

ENVIRONMENT = "LAZULI_SERVER"
_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_TIMEOUT_S = 60.0


class PassingOn:
    """An ASGI application with one connection to a server."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request, or live from the start to the end of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        pieces, more = [], True
        while more:
            message = await receive()
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
        answer = await self._infer(b"".join(pieces), timeout=_TIMEOUT_S)
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        async with grpc.aio.insecure_channel(os.environ[ENVIRONMENT]) as channel:
            self._infer = channel.unary_unary(_METHOD)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


app = PassingOn()
