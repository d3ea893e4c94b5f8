"""`/tokenize` and `/info` of text-embeddings-inference.

Takes texts, returns tokens: only where a tokenizer runs in the gateway, for the servers tell nothing but ids.
"""

from importlib.metadata import version
from typing import Any

import msgspec
import orjson
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from lazuli_client.gateway.apis.endpoint import Endpoint
from lazuli_client.gateway.apis.shapes import JSON
from lazuli_client.gateway.apis.tei import Inputs
from lazuli_client.gateway.errors import ApiError
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway

_MOST_CHARS = 1 << 20
VERSION = version("lazuli")


class TokenizeRequest(Struct, forbid_unknown_fields=True):
    """Texts to tokenise, without a prompt, and uncut."""

    inputs: Inputs
    add_special_tokens: bool = True


class Token(Struct):
    """A token and the characters that it stands for."""

    id: int
    text: str
    special: bool
    start: int | None = None
    stop: int | None = None


async def tokenize(gateway: Gateway, body: TokenizeRequest, call: Call) -> bytes:
    """Tokenise."""
    model = gateway.models.find(None, "embed")
    if model.tokenizer is None:
        raise ApiError(501, "the gateway has no tokenizer of its own: start it with --tokenizer", "not_supported")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    gateway.check_rows(len(texts), "inputs")
    if (size := sum(map(len, texts))) > _MOST_CHARS:
        raise ApiError(413, f"inputs: {size} characters, but at most {_MOST_CHARS} are allowed", "request_too_large")
    with call.timings.stage("tokenize"):
        rows = [
            [
                Token(one.token_id, one.text, one.is_special, one.start, one.stop)
                for one in model.tokenizer.pieces(text, body.add_special_tokens)
            ]
            for text in texts
        ]
    call.rows, call.tokens = len(rows), sum(map(len, rows))
    return msgspec.json.encode(rows)


async def info(request: Request) -> Response:
    """`/info`: what is served, and the limits."""
    gateway: Gateway = request.app.state.gateway
    settings = gateway.settings
    embed = next((model for model in gateway.models if model.kind == "embed"), None)
    local = embed.tokenizer if embed else None
    body: dict[str, Any] = {
        "model_id": embed.name if embed else None,
        "models": {model.name: model.kind for model in gateway.models},
        "max_concurrent_requests": settings.max_requests * settings.workers,
        "max_input_length": local.max_seq_length if local else None,
        "max_batch_tokens": settings.chunk_tokens,
        "max_client_batch_size": settings.max_rows,
        "tokenization_workers": settings.workers if local else None,
        "version": VERSION,
    }
    return Response(orjson.dumps(body), media_type=JSON)


TOKENIZE = Endpoint(
    "/tokenize",
    TokenizeRequest,
    list[list[Token]],
    tokenize,
    {"text": "inputs"},
    "Tokens (text-embeddings-inference), where the gateway has a tokenizer",
    {"inputs": "a blue gem"},
)
