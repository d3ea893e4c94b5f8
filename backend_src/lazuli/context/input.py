"""Documents out of the token ids of their chunks, checked before they go near the device.

Takes the arrays of a request of N chunks, returns documents: each is one sequence for the model, of which spans of
tokens make vectors. Knows nothing of Triton.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lazuli.errors import InputError
from lazuli.token_input import TokenLimits, check_values, take_runs

# In the mask of a row of ids: tokens that are read with the others, but belong to no chunk.
BETWEEN_MARK = 3
# The row of a span whose vector nobody gets.
NO_ROW = -1


@dataclass(frozen=True, slots=True)
class Document:
    """Chunks that are read together.

    Attributes:
        input_ids: [L] int32, of all chunks and what is between them.
        spans: [P] int32, the lengths of the pieces that it consists of, each at least 1; together L.
        rows: [P] int32, the row of the request whose vector is made of each piece, or `NO_ROW`.
    """

    input_ids: np.ndarray
    spans: np.ndarray
    rows: np.ndarray

    @property
    def chunks(self) -> list[np.ndarray]:
        """The ids of its chunks."""
        pieces = np.split(self.input_ids, np.cumsum(self.spans)[:-1])
        return [piece for piece, row in zip(pieces, self.rows, strict=True) if row != NO_ROW]


def read_documents(
    input_ids: np.ndarray, attention_mask: np.ndarray, document: np.ndarray, limits: TokenLimits
) -> list[Document]:
    """Put the chunks of a request together.

    Args:
        input_ids: [N, S] int32, a chunk a row.
        attention_mask: [N, S] int8; 1 for a token, `BETWEEN_MARK` for one between chunks, 0 for padding. The ones of a
            row must be contiguous.
        document: [N, 1] int32; equal for the chunks of a document, which must be consecutive.
        limits: What the model can take.

    Raises:
        InputError: If shapes differ, the mask has holes or other values, a chunk has no token, an id is out of the
            vocabulary, or a document is too long or comes in several places. The message names field and row.
    """
    groups = group_rows(document, len(input_ids) if input_ids.ndim else 0)
    rows = take_runs(input_ids, attention_mask, limits.vocab_size)
    allowed = (attention_mask == 0) | (attention_mask == 1) | (attention_mask == BETWEEN_MARK)
    check_values(attention_mask, ~allowed, "attention_mask", f"only 0, 1 and {BETWEEN_MARK} are allowed")
    marks = [mask[mask != 0] == 1 for mask in attention_mask]
    documents = []
    for group in groups:
        ids = np.concatenate([rows[row] for row in group])
        if len(ids) > limits.max_positions:
            raise InputError(
                f"{name_rows('input_ids', group)}: {len(ids)} tokens in one document, but the model takes at most "
                f"{limits.max_positions}"
            )
        spans = [span for row in group for span in _spans(marks[row], row)]
        lengths, owners = np.array(spans, dtype=np.int32).T
        documents.append(Document(ids, np.ascontiguousarray(lengths), np.ascontiguousarray(owners)))
    return documents


def group_rows(document: np.ndarray, num_rows: int) -> list[range]:
    """The rows of each document of a request.

    Args:
        document: As for `read_documents`.
        num_rows: N.

    Raises:
        InputError: If the shape is another one, or the rows of a document are not consecutive.
    """
    if document.shape != (num_rows, 1):
        raise InputError(f"document: the shape must be [{num_rows}, 1], one number a row, got {list(document.shape)}")
    numbers = document[:, 0].tolist()
    starts = [row for row in range(num_rows) if row == 0 or numbers[row] != numbers[row - 1]]
    seen: set[int] = set()
    for row in starts:
        if numbers[row] in seen:
            raise InputError(f"document[{row}]: {numbers[row]} again, but the rows of a document must be consecutive")
        seen.add(numbers[row])
    return [range(start, end) for start, end in pairwise([*starts, num_rows])]


def name_rows(field: str, rows: range) -> str:
    """The rows of a document, for an error message."""
    last = f" to {field}[{rows[-1]}]" if len(rows) > 1 else ""
    return f"{field}[{rows[0]}]{last}"


def _spans(is_chunk: np.ndarray, row: int) -> list[tuple[int, int]]:
    """Length and owner of the pieces of a row: what is between, the chunk, what is between."""
    edges = np.flatnonzero(np.diff(is_chunk)) + 1
    lengths = np.diff([0, *edges, len(is_chunk)])
    owners = [row if is_chunk[start] else NO_ROW for start in (0, *edges)]
    if owners.count(row) != 1:
        problem = "no 1, so there is no token to embed" if row not in owners else "the ones of a row must be contiguous"
        raise InputError(f"attention_mask[{row}]: {problem}")
    return list(zip(lengths.tolist(), owners, strict=True))
