"""Requests for the vectors of chunks that are read together with the rest of their documents.

Takes documents, which are lists of texts; returns requests, each of whole documents, and cuts their answer by document.
Does not know protocols.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from lazuli_client.embeddings import Embeddings
from lazuli_client.errors import InputTypeError, InvalidInputError, LazuliError
from lazuli_client.options import EmbedOptions
from lazuli_client.request import EmbedRequest, text_request
from lazuli_client.settings import MAX_ROWS, Settings
from lazuli_client.texts import Texts, as_texts

# The model that is called if the client was told of none.
DEFAULT_MODEL = "embed_context"


def as_documents(documents: Sequence[Texts]) -> list[list[str]]:
    """The documents as lists of their chunks.

    Raises:
        InvalidInputError: If there is no document, or one has no chunk, too many, or one that is no text.
        InputTypeError: If it is no sequence.
    """
    if isinstance(documents, (str, bytes)) or not isinstance(documents, (Sequence, np.ndarray)):
        raise InputTypeError(f"documents: must be a sequence of lists of chunks, got {type(documents).__name__}")
    if not len(documents):
        raise InvalidInputError("documents: there is no document; at least 1 is needed")
    checked: list[list[str]] = []
    for place, chunks in enumerate(documents):
        if isinstance(chunks, str):
            raise InputTypeError(f"documents[{place}]: must be a sequence of chunks, not one string")
        try:
            texts = as_texts(chunks)
        except InvalidInputError as error:
            raise type(error)(f"documents[{place}]: {error.message}") from None
        if len(texts) > MAX_ROWS:
            raise InvalidInputError(f"documents[{place}]: {len(texts)} chunks, but the server takes at most {MAX_ROWS}")
        checked.append(texts)
    return checked


def context_requests(
    settings: Settings, documents: Sequence[Sequence[str]], options: EmbedOptions
) -> Iterator[EmbedRequest]:
    """Requests for documents; rows are counted over the chunks of all of them."""
    model = DEFAULT_MODEL if settings.model == "embed" else settings.model
    total = sum(map(len, documents))
    first_row = 0
    for group in _groups(settings, documents):
        texts = [text for chunks in group for text in chunks]
        rows = range(first_row, first_row + len(texts))
        first_row = rows.stop
        request = text_request(model, texts, options.parameters(), rows, ends_batch=rows.stop == total)
        numbers = np.repeat(np.arange(len(group), dtype=np.int32), [len(chunks) for chunks in group])
        request.tensors["document"] = numbers[:, None]
        yield request


def by_document(embeddings: Embeddings, documents: Sequence[Sequence[str]]) -> list[Embeddings]:
    """The vectors of all chunks, cut by document."""
    edges = [0, *accumulate(map(len, documents))]
    return [
        replace(
            embeddings,
            embeddings=embeddings.embeddings[begin:end],
            token_counts=embeddings.token_counts[begin:end],
            truncated=embeddings.truncated[begin:end],
        )
        for begin, end in pairwise(edges)
    ]


def located(error: LazuliError, documents: Sequence[Sequence[str]]) -> LazuliError:
    """The error with the document and the chunk that its row is."""
    if error.row is None:
        return error
    ends = list(accumulate(map(len, documents)))
    place = next((number for number, end in enumerate(ends) if error.row < end), None)
    if place is None:
        return error
    chunk = error.row - (ends[place] - len(documents[place]))
    return type(error)(f"{error.message} (documents[{place}], chunk {chunk})", code=error.code, row=error.row)


def _groups(settings: Settings, documents: Sequence[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """Documents that go into one request; one that is larger than a request should be goes alone."""
    group: list[Sequence[str]] = []
    num_rows = num_chars = 0
    for chunks in documents:
        chars = sum(map(len, chunks))
        too_many = num_rows + len(chunks) > settings.rows_per_request
        if group and (too_many or num_chars + chars > settings.chars_per_request):
            yield group
            group, num_rows, num_chars = [], 0, 0
        group.append(chunks)
        num_rows, num_chars = num_rows + len(chunks), num_chars + chars
    yield group
