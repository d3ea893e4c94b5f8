"""Cohere's API of the second version: `/v2/embed` and `/v2/rerank`.

Takes its messages, returns its answers. Prompts follow `input_type`, as far as the model has some.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec import Meta, Struct

from lazuli_client.embeddings import Embeddings
from lazuli_client.errors import LazuliError
from lazuli_client.gateway.apis.encode import as_base64, as_numbers, join_rows
from lazuli_client.gateway.apis.endpoint import Endpoint
from lazuli_client.gateway.apis.ranks import ranked, refuse
from lazuli_client.gateway.errors import from_lazuli, invalid
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway
from lazuli_client.gateway.work.models import ServedModel
from lazuli_client.options import EmbedOptions
from lazuli_client.task_options import RerankOptions

EmbeddingType = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]
# What the server calls the encodings; base64 is another way to write those of float.
_OUTPUTS = {"float": "float32", "base64": "float32"}
_INPUT_TYPES = {"search_query": "query", "search_document": "document"}
Texts = Annotated[list[str], Meta(min_length=1)]


class TextPart(Struct, forbid_unknown_fields=True):
    """A text of an input."""

    text: str
    type: Literal["text"]


class Input(Struct, forbid_unknown_fields=True):
    """An input, which is one text here."""

    content: Annotated[list[TextPart], Meta(min_length=1, max_length=1)]


class EmbedRequest(Struct, forbid_unknown_fields=True):
    """Texts to embed, as `texts` or as `inputs`."""

    model: str
    input_type: Literal["search_document", "search_query", "classification", "clustering"]
    texts: Texts | None = None
    inputs: Annotated[list[Input], Meta(min_length=1)] | None = None
    images: None = None
    embedding_types: Annotated[list[EmbeddingType], Meta(min_length=1)] | None = None
    truncate: Literal["NONE", "START", "END"] | None = "END"
    output_dimension: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: None = None
    priority: int | None = 0


class RerankRequest(Struct, forbid_unknown_fields=True):
    """Documents to order by how well they answer a query."""

    model: str
    query: str
    documents: Texts
    top_n: Annotated[int, Meta(ge=1)] | None = None
    max_tokens_per_doc: int | None = None
    priority: int | None = 0


class ApiVersion(Struct):
    """The version of the API."""

    version: str = "2"


class BilledUnits(Struct, omit_defaults=True):
    """What was read."""

    input_tokens: int | None = None
    search_units: int | None = None


class Tokens(Struct):
    """What the model read, special tokens included."""

    input_tokens: int


class ApiMeta(Struct):
    """About the answer."""

    api_version: ApiVersion
    billed_units: BilledUnits
    tokens: Tokens


class EmbedResponse(Struct):
    """Vectors of each type that was asked for, in the order of the texts."""

    id: str
    embeddings: dict[str, list[list[float] | str]]
    texts: list[str]
    meta: ApiMeta
    response_type: Literal["embeddings_by_type"] = "embeddings_by_type"


class Result(Struct):
    """A document."""

    index: int
    relevance_score: float


class RerankResponse(Struct):
    """The best documents, best first."""

    id: str
    results: list[Result]
    meta: ApiMeta


async def embed(gateway: Gateway, body: EmbedRequest, call: Call) -> bytes:
    """Embed; each encoding is computed once."""
    model = gateway.models.find(body.model, "embed")
    texts = _texts(body)
    gateway.check_rows(len(texts), "texts" if body.inputs is None else "inputs")
    types = list(dict.fromkeys(body.embedding_types or ["float"]))
    outputs = list(dict.fromkeys(_OUTPUTS.get(kind, kind) for kind in types))
    options = {output: _options(body, output) for output in outputs}
    try:
        found = await _embed_all(gateway, model, texts, list(options.values()), call)
    except LazuliError as error:
        raise from_lazuli(error, _FIELDS | {"text": "texts" if body.inputs is None else "inputs"}) from None
    answers = dict(zip(outputs, found, strict=True))
    parts = []
    for kind in types:
        vectors = answers[_OUTPUTS.get(kind, kind)].embeddings
        write = as_base64 if kind == "base64" else as_numbers
        rows = await join_rows(vectors, lambda _, row, write=write: write(row), call)  # type: ignore[misc]
        parts.append(b'"%b":[%b]' % (kind.encode(), rows))
    call.rows, call.tokens = len(texts), int(answers[outputs[0]].token_counts.sum())
    return b'{"id":%b,"response_type":"embeddings_by_type","embeddings":{%b},"texts":%b,"meta":%b}' % (
        orjson.dumps(call.request_id),
        b",".join(parts),
        orjson.dumps(texts),
        msgspec.json.encode(_meta(call, BilledUnits(input_tokens=call.tokens))),
    )


async def rerank(gateway: Gateway, body: RerankRequest, call: Call) -> bytes:
    """Order documents; the scores are between 0 and 1."""
    refuse("max_tokens_per_doc", body.max_tokens_per_doc)
    options = RerankOptions(activation="sigmoid")
    best = await ranked(
        gateway, body.model, body.query, body.documents, options, call, field="documents", top_n=body.top_n
    )
    results = [Result(one.index, one.score) for one in best]
    return msgspec.json.encode(RerankResponse(call.request_id, results, _meta(call, BilledUnits(search_units=1))))


async def _embed_all(
    gateway: Gateway, model: ServedModel, texts: list[str], options: Sequence[EmbedOptions], call: Call
) -> Sequence[Embeddings]:
    """The answers for several options; if one fails, the others are not waited for."""
    tasks = [asyncio.create_task(gateway.service.embed(model, texts, one, call)) for one in options]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _texts(body: EmbedRequest) -> list[str]:
    if (body.texts is None) == (body.inputs is None):
        raise invalid("texts: exactly one of texts and inputs is needed", "texts")
    return body.texts if body.texts is not None else [one.content[0].text for one in body.inputs or []]


def _options(body: EmbedRequest, output: str) -> EmbedOptions:
    return EmbedOptions(
        truncate=(body.truncate or "END").lower(),
        dimensions=body.output_dimension,
        input_type=_INPUT_TYPES.get(body.input_type),
        output=output,
    )


def _meta(call: Call, units: BilledUnits) -> ApiMeta:
    return ApiMeta(ApiVersion(), units, Tokens(call.tokens))


# What the API calls the fields that the server names, and the options that it advises.
_FIELDS = {
    "dimensions": "output_dimension",
    'truncate="end"': 'truncate: "END"',
    "force_dimensions=true": "",
}
_EXAMPLE: Any = {"model": "embed", "input_type": "search_document", "texts": ["a blue gem", "a red car"]}
EMBED = Endpoint("/v2/embed", EmbedRequest, EmbedResponse, embed, _FIELDS, "Vectors of texts (Cohere)", _EXAMPLE)
RERANK = Endpoint(
    "/v2/rerank",
    RerankRequest,
    RerankResponse,
    rerank,
    {"document": "documents", 'truncate="end"': ""},
    "Documents in the order in which they answer a query (Cohere)",
    {"model": "rerank", "query": "a ring", "documents": ["a sapphire ring", "a red car"], "top_n": 1},
)
