"""What all endpoints share: the body in, the answer out, errors in between.

Takes a message type and a function from the message to the answer, returns an ASGI application: Starlette's requests
and responses would take longer than what is between them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lazuli_client.errors import LazuliError
from lazuli_client.gateway.apis.presence import while_connected
from lazuli_client.gateway.apis.shapes import JSON, error_response
from lazuli_client.gateway.errors import ApiError, from_lazuli, invalid
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway

Body = TypeVar("Body")
# Whether somebody still waits is looked at for larger bodies: what a smaller one asks for is done as quickly.
_LARGE_BYTES = 16_384
_JSON = (b"content-type", JSON.encode())


@dataclass(frozen=True)
class Endpoint(Generic[Body]):
    """A path that takes JSON.

    Attributes:
        path: The path.
        body: Struct of what it takes.
        answer: Of what it answers, for the OpenAPI document.
        run: From the message to the JSON of the answer.
        fields: What the API calls the fields that the server names, such as text, and the options that it advises.
        summary: A line for the OpenAPI document.
        example: A body, for the OpenAPI document.
        decode: From JSON to the message.
    """

    path: str
    body: type[Body]
    answer: object
    run: Callable[[Gateway, Body, Call], Coroutine[Any, Any, bytes]]
    fields: Mapping[str, str]
    summary: str
    example: object
    decode: Callable[[bytes], Body] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decode", msgspec.json.Decoder(self.body).decode)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST."""
        try:
            answer = await self._answer(scope["app"].state.gateway, scope["state"]["call"], receive)
        except ClientDisconnect:
            await Response(status_code=499)(scope, receive, send)
        except (ApiError, LazuliError) as error:
            known = error if isinstance(error, ApiError) else from_lazuli(error, self.fields)
            await error_response(known, scope["path"])(scope, receive, send)
        else:
            headers = [_JSON, (b"content-length", b"%d" % len(answer))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": answer})

    async def _answer(self, gateway: Gateway, call: Call, receive: Receive) -> bytes:
        data = await _body(receive, call, gateway.settings.body_timeout_s)
        with call.timings.stage("parse"):
            message = self._decoded(data)
        work = self.run(gateway, message, call)
        return await (while_connected(work, receive) if len(data) > _LARGE_BYTES else work)

    def _decoded(self, data: bytes) -> Body:
        try:
            return self.decode(data)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            name = place.removesuffix("`").removeprefix(".") or None
            raise invalid(f"{name}: {message}" if name else message, name) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(f"the body is not valid JSON: {error}") from None


async def _body(receive: Receive, call: Call, timeout_s: float) -> bytes:
    """The body, whole.

    Raises:
        ApiError: With 408 if it does not come in time; what `receive` raises.
        ClientDisconnect: If the client goes away.
    """
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout_at(min(call.deadline, asyncio.get_running_loop().time() + timeout_s)):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                pieces.append(message.get("body", b""))
                if not message.get("more_body", False):
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    except TimeoutError:
        pieces.clear()  # the error knows this frame, and lives until garbage is collected
        raise ApiError(408, "the body did not arrive within the time that it has", "timeout") from None
