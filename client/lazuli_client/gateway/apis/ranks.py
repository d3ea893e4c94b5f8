"""Scores of documents, best first, as the APIs for reranking want them.

Takes scores, returns places and scores of the best.
"""

from collections.abc import Sequence

from lazuli_client.gateway.errors import ApiError
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway
from lazuli_client.ranking import Ranking, rank
from lazuli_client.task_options import RerankOptions


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
        ApiError: If there are none, or too many.
        LazuliError: If they cannot be scored.
    """
    served = gateway.models.find(model, "rerank")
    gateway.check_rows(len(documents), field)
    scores = await gateway.service.score(served, query, documents, options, call)
    return rank(scores, documents, top_n, return_documents=False)


def refuse(name: str, value: object) -> None:
    """Refuse a field that the API has and this server does not, unless it is left out.

    Raises:
        ApiError: If it is there.
    """
    if value is not None:
        raise ApiError(400, f"{name}: this server does not have that", "invalid_request_error", field=name)
