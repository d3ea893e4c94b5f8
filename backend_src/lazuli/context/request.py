"""A request for the vectors of chunks that are read together, as documents.

Takes documents, and later the vectors of their spans. To the engine each document is one sequence. What it computes of
a chunk goes to the request of chunks, which answers.
"""

from collections.abc import Sequence as SequenceOf

import numpy as np

from lazuli.context.input import NO_ROW, Document
from lazuli.errors import LazuliError
from lazuli.request import Request, Sequence


class ContextRequest(Request):
    """The documents of a request's chunks. Answered by that request."""

    def __init__(self, documents: SequenceOf[Document], chunks: Request) -> None:
        """Wrap documents.

        Args:
            documents: All of a request.
            chunks: The request, whose rows the chunks are.
        """
        self.finish = chunks.finish
        self.sequences = tuple(
            Sequence(self, place, document.input_ids, document.spans) for place, document in enumerate(documents)
        )
        self.num_tokens = sum(map(len, self.sequences))
        self._documents = documents
        self._chunks = chunks

    @property
    def done(self) -> bool:
        """Whether the last word was sent."""
        return self._chunks.done

    def prepare(self) -> None:
        """Prepare the answer of the chunks."""
        self._chunks.prepare()

    def deliver(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Take the vectors of some documents; sends what can be sent.

        Args:
            rows: [K] int32, ascending: which documents.
            values: [K] objects: for each document [P, D] float32, a row for each of its spans.
        """
        owners = np.concatenate([self._documents[row].rows for row in rows])
        vectors = np.concatenate(list(values))
        kept = owners != NO_ROW
        # Chunks are ascending within a document, and so are documents.
        self._chunks.deliver(owners[kept], vectors[kept])

    def fail(self, error: LazuliError) -> None:
        """End the request with an error, unless it has ended already."""
        self._chunks.fail(error)

    def fail_if_cancelled(self) -> bool:
        """See `Request`."""
        return self._chunks.fail_if_cancelled()

    def _answer(self, rows: np.ndarray, outputs: object) -> None:
        raise NotImplementedError("the request of chunks answers")
