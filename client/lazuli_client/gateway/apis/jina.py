"""Reranking as Jina's API and text-embeddings-inference have it: `/rerank`, and `/v1/rerank`.

Takes `documents` or `texts`, and answers in the shape of the API that calls them so.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from lazuli_client.errors import LazuliError
from lazuli_client.gateway.apis.endpoint import Endpoint
from lazuli_client.gateway.apis.ranks import ranked
from lazuli_client.gateway.errors import from_lazuli, invalid
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway
from lazuli_client.ranking import Ranking
from lazuli_client.task_options import RerankOptions

Texts = Annotated[list[str], Meta(min_length=1)]


class Document(Struct):
    """A text; what else is known of it is not read."""

    text: str


class RerankRequest(Struct, forbid_unknown_fields=True):
    """Documents to order: `documents`, as Jina has it, or `texts`, as text-embeddings-inference has it."""

    query: str
    documents: Annotated[list[str | Document], Meta(min_length=1)] | None = None
    texts: Texts | None = None
    model: str | None = None
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool | None = False
    return_text: bool | None = False
    raw_scores: bool | None = False
    truncate: bool | None = True
    truncation_direction: Literal["Left", "left", "Right", "right"] | None = "Right"
    instruction: str | None = None


class Result(Struct, omit_defaults=True):
    """A document, with its text if it was asked for."""

    index: int
    relevance_score: float
    document: Document | None = None


class Usage(Struct):
    """Tokens that the model read, special tokens included."""

    total_tokens: int


class RerankResponse(Struct):
    """The best documents, best first."""

    model: str
    usage: Usage
    results: list[Result]


class Rank(Struct, omit_defaults=True):
    """A text, with itself if it was asked for."""

    index: int
    score: float
    text: str | None = None


async def rerank(gateway: Gateway, body: RerankRequest, call: Call) -> bytes:
    """Order documents; the scores are between 0 and 1, unless `raw_scores` says otherwise."""
    if (body.documents is None) == (body.texts is None):
        raise invalid("documents: exactly one of documents and texts is needed", "documents")
    given = body.documents if body.texts is None else body.texts
    texts = [one if isinstance(one, str) else one.text for one in given or []]
    options = RerankOptions(
        truncate=truncation(body.truncate is not False, body.truncation_direction),
        activation="none" if body.raw_scores else "sigmoid",
        instruction=body.instruction,
    )
    field = "documents" if body.texts is None else "texts"
    try:
        best = await ranked(gateway, body.model, body.query, texts, options, call, field=field, top_n=body.top_n)
    except LazuliError as error:
        raise from_lazuli(error, TEI_OPTIONS | {"document": field}) from None
    if body.texts is not None:
        return msgspec.json.encode(
            [Rank(one.index, one.score, texts[one.index] if body.return_text else None) for one in best]
        )
    name = gateway.models.find(body.model, "rerank").name
    return msgspec.json.encode(
        RerankResponse(name, Usage(call.tokens), _results(best, texts, bool(body.return_documents)))
    )


def truncation(truncate: bool, direction: str | None) -> str:
    """What text-embeddings-inference says in two fields."""
    if not truncate:
        return "none"
    return "start" if direction in ("Left", "left") else "end"


def _results(best: Ranking, texts: list[str], with_texts: bool) -> list[Result]:
    return [Result(one.index, one.score, Document(texts[one.index]) if with_texts else None) for one in best]


# What these APIs call the options that the server advises.
TEI_OPTIONS = {'truncate="end"': "truncate: true", "force_dimensions=true": ""}
_SUMMARY = "Documents in the order in which they answer a query (Jina, text-embeddings-inference)"
_EXAMPLE = {"query": "a ring", "documents": ["a sapphire ring", "a red car"]}
RERANK = Endpoint("/rerank", RerankRequest, RerankResponse | list[Rank], rerank, {}, _SUMMARY, _EXAMPLE)
RERANK_V1 = Endpoint("/v1/rerank", RerankRequest, RerankResponse | list[Rank], rerank, {}, _SUMMARY, _EXAMPLE)
