"""Scores of documents, best first, as the APIs for reranking want them.

Takes scores, returns places and scores of the best.
"""

from collections.abc import Sequence

from lazuli_client.gateway.errors import ApiError, too_large
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway
from lazuli_client.ranking import Ranking, rank
from lazuli_client.task_options import RerankOptions

# The query goes to the servers once for each document.
_MOST_QUERY_BYTES = 64 << 20


async def ranked(
    gateway: Gateway,
    model: str | None,
    query: str,
    documents: Sequence[str],
    options: RerankOptions,
    call: Call,
    *,
    field: str,
    top_n: int | None = None,
) -> Ranking:
    """The best documents.

    Args:
        gateway: What answers.
        model: Name of the model; None for the first that there is.
        query: The query.
        documents: The texts.
        options: Of the model.
        call: The request.
        field: What the API calls the documents.
        top_n: How many; None for all.

    Raises:
        ApiError: If there are none, or too many, also for a query of that length.
        LazuliError: If they cannot be scored.
    """
    served = gateway.models.find(model, "rerank")
    gateway.check_rows(len(documents), field)
    size = len(query.encode())
    if size * len(documents) > _MOST_QUERY_BYTES:
        raise too_large(
            f"query: {size} bytes for each of {len(documents)} {field}, "
            f"but at most {_MOST_QUERY_BYTES} in all are allowed",
            "query",
        )
    scores = await gateway.service.score(served, query, documents, options, call)
    return rank(scores, documents, top_n, return_documents=False)


def refuse(name: str, value: object) -> None:
    """Refuse a field that the API has and this server does not, unless it is left out.

    Raises:
        ApiError: If it is there.
    """
    if value is not None:
        raise ApiError(400, f"{name}: this server does not have that", "invalid_request_error", field=name)
