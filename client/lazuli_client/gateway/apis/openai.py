"""OpenAI's API: `/v1/embeddings` and `/v1/models`.

Takes its messages, with the options of this server as further fields, returns its answers.
"""

from typing import Annotated, Literal

import msgspec
import orjson
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from lazuli_client.embeddings import Embeddings
from lazuli_client.gateway.apis.encode import as_base64, as_numbers, join_rows
from lazuli_client.gateway.apis.endpoint import Endpoint
from lazuli_client.gateway.apis.shapes import JSON, error_response
from lazuli_client.gateway.errors import ApiError, invalid, too_large
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway
from lazuli_client.options import EmbedOptions

_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_INPUT = {
    "oneOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        _TOKENS,
        {"type": "array", "items": _TOKENS, "minItems": 1},
    ]
}
Input = Annotated[
    str | list[str | int | list[int]],
    Meta(
        description="A text, texts, token ids of a text, or those of several; special tokens among the ids.",
        extra_json_schema=_INPUT,
    ),
]


# Ids of a row: more than any model reads. The server tells the model's own limit.
_MOST_IDS = 1 << 18


class EmbeddingsRequest(Struct, forbid_unknown_fields=True):
    """Texts to embed. The fields from `input_type` on are not OpenAI's: options of this server."""

    input: Input
    model: str
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None
    input_type: Literal["query", "document"] | None = None
    prompt_name: str | None = None
    instruction: str | None = None
    truncate: Literal["none", "end", "start", "split"] | None = None
    overlap: Annotated[int, Meta(ge=0)] | None = None
    normalize: bool | None = None
    force_dimensions: bool | None = None
    workload: Literal["query", "bulk"] | None = None


class Embedding(Struct):
    """A vector; in base64 a string of its float32 bytes, little-endian."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class Usage(Struct):
    """Tokens that the model read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(Struct):
    """Vectors in the order of the texts."""

    data: list[Embedding]
    model: str
    usage: Usage
    object: Literal["list"] = "list"


async def embeddings(gateway: Gateway, body: EmbeddingsRequest, call: Call) -> bytes:
    """Embed."""
    model = gateway.models.find(body.model, "embed")
    options = EmbedOptions(
        body.prompt_name,
        body.instruction,
        body.truncate,
        body.dimensions,
        body.normalize,
        body.input_type,
        body.overlap,
        None,
        body.force_dimensions,
    )
    texts, tokens = _rows(body.input)
    gateway.check_rows(len(texts) + len(tokens), "input")
    if texts:
        answer = await gateway.service.embed(model, texts, options, call, body.workload)
    else:
        answer = await gateway.service.embed_tokens(model, tokens, options, call, body.workload)
    return await _response(answer, body, call)


def _rows(given: str | list[str | int | list[int]]) -> tuple[list[str], list[list[int]]]:
    """The input as texts or as rows of tokens; the other list is empty."""
    if isinstance(given, str):
        return [given], []
    kinds = {type(item) for item in given}
    if kinds <= {str}:
        return given, []  # type: ignore[return-value]
    if kinds == {int}:
        return [], _checked([given])  # type: ignore[list-item]
    if kinds == {list}:
        return [], _checked(given)  # type: ignore[arg-type]
    raise invalid("input: must be all strings, all integers or all lists of integers, not some of each", "input")


def _checked(rows: list[list[int]]) -> list[list[int]]:
    """The rows, before they become arrays, which takes long if they are.

    Raises:
        ApiError: If one is too long for any model.
    """
    for row, ids in enumerate(rows):
        if len(ids) > _MOST_IDS:
            raise too_large(f"input[{row}]: {len(ids)} ids, but at most {_MOST_IDS} are allowed", "input")
    return rows


async def _response(answer: Embeddings, body: EmbeddingsRequest, call: Call) -> bytes:
    if not answer.embeddings.shape[1]:
        raise invalid(f"model: {body.model!r} has no dense vectors", "model")
    write = as_base64 if body.encoding_format == "base64" else as_numbers
    data = await join_rows(
        answer.embeddings,
        lambda index, row: b'{"object":"embedding","index":%d,"embedding":%b}' % (index, write(row)),
        call,
    )
    usage = msgspec.json.encode(Usage(call.tokens, call.tokens))
    name = orjson.dumps(body.model)
    return b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % (data, name, usage)


async def models(request: Request) -> Response:
    """`/v1/models`: the models that the servers have, and their other names."""
    return Response(orjson.dumps({"object": "list", "data": _models(request.app.state.gateway)}), media_type=JSON)


async def model(request: Request) -> Response:
    """`/v1/models/NAME`: one of them."""
    name = request.path_params["name"]
    for one in _models(request.app.state.gateway):
        if one["id"] == name:
            return Response(orjson.dumps(one), media_type=JSON)
    missing = ApiError(404, f"model: {name!r} is not known", "model_not_found", field="model")
    return error_response(missing, request.url.path)


def _models(gateway: Gateway) -> list[dict[str, object]]:
    names = {model.name: model.kind for model in gateway.models}
    names |= {alias: names[name] for alias, name in gateway.settings.aliases.items() if name in names}
    return [
        {"id": name, "object": "model", "created": 0, "owned_by": "lazuli", "task": kind}
        for name, kind in names.items()
    ]


EMBEDDINGS = Endpoint(
    "/v1/embeddings",
    EmbeddingsRequest,
    EmbeddingsResponse,
    embeddings,
    {"text": "input", "input_ids": "input"},
    "Vectors of texts (OpenAI)",
    {"model": "embed", "input": ["a blue gem", "a red car"]},
)
