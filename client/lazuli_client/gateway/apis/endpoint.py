"""What all endpoints share: the body in, the answer out, errors in between.

Takes a message type and a function from the message to the answer, returns what Starlette routes to.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lazuli_client.errors import LazuliError
from lazuli_client.gateway.apis.presence import while_connected
from lazuli_client.gateway.apis.shapes import JSON, error_response
from lazuli_client.gateway.errors import ApiError, from_lazuli, invalid
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway

Body = TypeVar("Body")
# Whether somebody still waits is looked at for larger bodies: what a smaller one asks for is done as quickly.
_LARGE_BYTES = 16_384


@dataclass(frozen=True)
class Endpoint(Generic[Body]):
    """A path that takes JSON.

    Attributes:
        path: The path.
        body: Struct of what it takes.
        answer: Of what it answers, for the OpenAPI document.
        run: From the message to the JSON of the answer.
        fields: What the API calls the fields that the server names, such as text.
        summary: A line for the OpenAPI document.
        example: A body, for the OpenAPI document.
    """

    path: str
    body: type[Body]
    answer: object
    run: Callable[[Gateway, Body, Call], Coroutine[Any, Any, bytes]]
    fields: Mapping[str, str]
    summary: str
    example: object

    def handler(self) -> Callable[[Request], Awaitable[Response]]:
        """What Starlette calls."""
        decode = msgspec.json.Decoder(self.body).decode

        async def handle(request: Request) -> Response:
            call: Call = request.state.call
            try:
                async with asyncio.timeout_at(call.deadline):
                    data = await request.body()
                with call.timings.stage("parse"):
                    message = _decoded(decode, data)
                work = self.run(request.app.state.gateway, message, call)
                answer = await (while_connected(work, request.receive) if len(data) > _LARGE_BYTES else work)
            except ClientDisconnect:
                return Response(status_code=499)
            except (ApiError, LazuliError, TimeoutError) as error:
                return error_response(self._as_api_error(error), request.url.path)
            return Response(answer, media_type=JSON)

        return handle

    def _as_api_error(self, error: ApiError | LazuliError | TimeoutError) -> ApiError:
        if isinstance(error, ApiError):
            return error
        if isinstance(error, LazuliError):
            return from_lazuli(error, self.fields)
        return ApiError(408, "the body did not arrive within the time that the request had", "timeout")


def _decoded(decode: Callable[[bytes], Body], data: bytes) -> Body:
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        field = place.removesuffix("`").removeprefix(".") or None
        raise invalid(f"{field}: {message}" if field else message, field) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"the body is not valid JSON: {error}") from None
