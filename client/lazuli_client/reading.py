"""How the outputs of requests become the answer of a call.

Takes outputs by name, returns what the caller gets. Does not know protocols or retries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lazuli_client.embeddings import Outputs, concatenate, from_outputs

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Reading(Generic[Answer]):
    """The reading of one kind of answer.

    Attributes:
        read: Outputs of one request, and the number of its rows, to the answer for these rows; raises `ServerError`.
        join: Answers to the requests of one batch to that for all of it.
    """

    read: Callable[[Outputs, int], Answer]
    join: Callable[[Sequence[Answer]], Answer]


EMBEDDINGS = Reading(from_outputs, concatenate)
