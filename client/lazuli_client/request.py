"""One request to the server, and the functions that cut a call into requests.

Takes checked texts or token lists, returns `EmbedRequest` objects that hold plain numpy tensors. Does not
know protocols.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazuli_client.errors import InvalidInputError
from lazuli_client.options import EmbedOptions
from lazuli_client.settings import Settings
from lazuli_client.splitting import Chunk, Splitter, split
from lazuli_client.texts import Texts, TokenLists, as_texts, as_token_lists
from lazuli_client.tracing import current_context

Parameters = dict[str, str | int | bool]


@dataclass(frozen=True)
class EmbedRequest:
    """One inference request.

    Attributes:
        model: Name of the model.
        tensors: Inputs by name; texts are an object array of bytes.
        parameters: Request parameters.
        rows: For each row of the request, its row in the caller's input.
        ends_batch: Whether the caller's batch ends with this request.
        context: The trace that the caller was in when the request was made, which other threads may send.
    """

    model: str
    tensors: dict[str, NDArray[Any]]
    parameters: Parameters
    rows: Sequence[int]
    ends_batch: bool = True
    context: dict[str, str] = field(default_factory=current_context)

    @property
    def sent_parameters(self) -> Parameters:
        """The parameters with the context among them."""
        return {**self.parameters, **self.context} if self.context else self.parameters


def text_request(
    model: str, texts: list[str], parameters: Parameters, rows: Sequence[int], ends_batch: bool = True
) -> EmbedRequest:
    """A request for texts: one input `text`, BYTES [N, 1]."""
    column = np.array([text.encode() for text in texts], dtype=np.object_).reshape(-1, 1)
    return EmbedRequest(model, {"text": column}, parameters, rows, ends_batch)


def token_request(
    model: str,
    tokens: list[NDArray[np.int32]],
    parameters: Parameters,
    rows: Sequence[int],
    ends_batch: bool = True,
) -> EmbedRequest:
    """A request for token lists, padded on the right: `input_ids` INT32, `attention_mask` INT8, [N, S]."""
    width = max(len(ids) for ids in tokens)
    input_ids = np.zeros((len(tokens), width), np.int32)
    mask = np.zeros((len(tokens), width), np.int8)
    for row, ids in enumerate(tokens):
        input_ids[row, : len(ids)] = ids
        mask[row, : len(ids)] = 1
    return EmbedRequest(model, {"input_ids": input_ids, "attention_mask": mask}, parameters, rows, ends_batch)


def text_requests(
    settings: Settings, batches: Iterable[Texts], options: EmbedOptions, first_row: int = 0
) -> Iterator[EmbedRequest]:
    """Requests for batch after batch, made when asked for; rows are counted over all, from `first_row`."""
    if not isinstance(options, EmbedOptions):
        raise InvalidInputError(f"options: must be EmbedOptions, got {type(options).__name__}")
    parameters = options.parameters()
    for batch in batches:
        texts = as_texts(batch, first_row)
        if len(texts) <= settings.rows_per_request and sum(map(len, texts)) <= settings.chars_per_request:
            rows = range(first_row, first_row + len(texts))
            first_row = rows.stop
            yield text_request(settings.model, texts, parameters, rows)
            continue
        splitter: Splitter[str] = Splitter(settings.rows_per_request, settings.chars_per_request, first_row)
        first_row += len(texts)
        for chunk in split(((text, len(text)) for text in texts), splitter):
            yield text_request(settings.model, chunk.items, parameters, chunk.rows, chunk.rows.stop == first_row)


def token_requests(settings: Settings, input_ids: TokenLists, options: EmbedOptions) -> Iterator[EmbedRequest]:
    """Requests for token lists; `chars_per_request` bounds the tokens."""
    rows = as_token_lists(input_ids)
    splitter: Splitter[NDArray[np.int32]] = Splitter(settings.rows_per_request, settings.chars_per_request)
    chunks: Iterator[Chunk[NDArray[np.int32]]] = split(((ids, len(ids)) for ids in rows), splitter)
    for chunk in chunks:
        ends = chunk.rows.stop == len(rows)
        yield token_request(settings.token_model, chunk.items, options.parameters(), chunk.rows, ends)
