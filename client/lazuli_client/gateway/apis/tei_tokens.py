"""`/tokenize` and `/info` of text-embeddings-inference.

Takes texts, returns tokens: only where a tokenizer runs in the gateway, for the servers tell nothing but ids.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from lazuli_client.gateway.apis.endpoint import Endpoint
from lazuli_client.gateway.apis.shapes import JSON
from lazuli_client.gateway.apis.tei import Inputs
from lazuli_client.gateway.errors import ApiError, too_large
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway
from lazuli_client.splitting import Splitter, split

if TYPE_CHECKING:
    from lazuli_client.gateway.work.tokens import LocalTokenizer

# Each may be a token, and a token takes some 50 bytes of the answer.
_MOST_CHARS = 1 << 18
# Characters that a thread is given at a time; it has more to do with each than in `work/requests.py`.
_SLICE_CHARS = 16_384
# One, so that it takes turns with the event loop only, however many ask.
_thread = ThreadPoolExecutor(1, "tokenize")
VERSION = version("lazuli")


class TokenizeRequest(Struct, forbid_unknown_fields=True):
    """Texts to tokenise, without a prompt, and uncut."""

    inputs: Inputs
    add_special_tokens: bool | None = True


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
        raise too_large(f"inputs: {size} characters, but at most {_MOST_CHARS} are allowed", "inputs")
    run, rows = asyncio.get_running_loop().run_in_executor, []
    slices: Splitter[str] = Splitter(gateway.settings.max_rows, _SLICE_CHARS)
    with call.timings.stage("tokenize"):
        for one in split(((text, len(text)) for text in texts), slices):
            encoded, tokens = await run(
                _thread, _encoded, model.tokenizer, one.items, body.add_special_tokens is not False
            )
            rows.append(encoded)
            call.tokens += tokens
    call.rows = len(texts)
    return b"[%b]" % b",".join(rows)


def _encoded(tokenizer: "LocalTokenizer", texts: list[str], add_special_tokens: bool) -> tuple[bytes, int]:
    """The rows of some texts as elements of a JSON list, and their tokens."""
    rows = [
        [
            Token(one.token_id, one.text, one.is_special, one.start, one.stop)
            for one in tokenizer.pieces(text, add_special_tokens)
        ]
        for text in texts
    ]
    return msgspec.json.encode(rows)[1:-1], sum(map(len, rows))


async def info(request: Request) -> Response:
    """`/info`: what is served, and the limits."""
    gateway: Gateway = request.app.state.gateway
    settings = gateway.settings
    embed = next((model for model in gateway.models if model.kind == "embed"), None)
    local = embed.tokenizer if embed else None
    body: dict[str, Any] = {
        "model_id": embed.name if embed else None,
        "models": {model.name: model.kind for model in gateway.models},
        "max_concurrent_requests": settings.max_requests,
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
