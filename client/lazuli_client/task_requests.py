"""Requests for scores of pairs and for labels of texts.

Takes checked texts, returns requests that hold plain numpy tensors, as `request.py` does. Does not know protocols.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lazuli_client.request import EmbedRequest, text_request
from lazuli_client.settings import Settings
from lazuli_client.splitting import Chunk, Splitter, split
from lazuli_client.task_options import ClassifyOptions, RerankOptions
from lazuli_client.texts import Texts, as_texts

# The models that are called if the client was told of none.
RERANK_MODEL = "rerank"
CLASSIFY_MODEL = "classify"
_EMBED_MODEL = "embed"


def rerank_requests(
    settings: Settings, query: str, documents: Sequence[str], options: RerankOptions
) -> Iterator[EmbedRequest]:
    """Requests for the scores of documents; `chars_per_request` counts the query once a document."""
    model = _model(settings, RERANK_MODEL)
    for chunk in _chunks(settings, documents, len(query)):
        tensors = {"query": _column([query] * len(chunk.items)), "document": _column(chunk.items)}
        ends = chunk.rows.stop == len(documents)
        yield EmbedRequest(model, tensors, options.parameters(), chunk.rows, ends)


def classify_requests(
    settings: Settings, batches: Iterable[Texts], options: ClassifyOptions, first_row: int = 0
) -> Iterator[EmbedRequest]:
    """Requests for the labels of batch after batch; the first of each batch asks for the names of all labels, too."""
    model = _model(settings, CLASSIFY_MODEL)
    for batch in batches:
        texts = as_texts(batch, first_row)
        begin, first_row = first_row, first_row + len(texts)
        for chunk in _chunks(settings, texts, 0, begin):
            parameters = options.parameters()
            if chunk.first_row == begin:
                parameters["labels"] = True
            yield text_request(model, chunk.items, parameters, chunk.rows, chunk.rows.stop == first_row)


def _model(settings: Settings, usual: str) -> str:
    return usual if settings.model == _EMBED_MODEL else settings.model


def _chunks(settings: Settings, texts: Sequence[str], more: int, first_row: int = 0) -> Iterator[Chunk[str]]:
    splitter: Splitter[str] = Splitter(settings.rows_per_request, settings.chars_per_request, first_row)
    return split(((text, len(text) + more) for text in texts), splitter)


def _column(texts: Sequence[str]) -> NDArray[np.object_]:
    return np.array([text.encode() for text in texts], dtype=np.object_).reshape(-1, 1)
