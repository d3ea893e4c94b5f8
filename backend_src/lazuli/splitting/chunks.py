"""Long texts as overlapping chunks, each small enough for the model.

Takes the ids of a text, returns those of its chunks. Knows nothing of tokenizers, models or vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lazuli.errors import InputError, OptionError

# In the mask of a row of ids: the first token of each chunk but the first one.
CHUNK_MARK = 2
# Of the most tokens of a chunk, unless a request says otherwise.
_OVERLAP_SHARE = 0.1


@dataclass(frozen=True)
class Frame:
    """The ids that stand around the text in each of its chunks.

    Attributes:
        before: Ids of the special tokens before, and of what a prompt puts before the text.
        after: Those behind.
    """

    before: Sequence[int] = ()
    after: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.after)

    def around(self, ids: Sequence[int]) -> list[int]:
        """The ids of a chunk out of those of a piece of the text."""
        return [*self.before, *ids, *self.after]


def part(ids: Sequence[int], before: Sequence[int], after: Sequence[int]) -> tuple[Frame, Sequence[int]]:
    """Tell a prompt from the text behind it.

    A tokenizer may join the last letters of a prompt with the first ones of a text. Such a token belongs to the text.

    Args:
        ids: Of the text with its prompt.
        before: Of what the prompt puts before a text, by itself.
        after: Of what it puts behind.

    Returns:
        The ids of the prompt as the text has them, and the ids between.
    """
    start = _equal(ids, before)
    end = len(ids) - _equal(ids[start:][::-1], after[::-1])
    return Frame(ids[:start], ids[end:]), ids[start:end]


def cut(ids: Sequence[int], limit: int, frame: Frame, overlap: int | None, where: str) -> list[list[int]]:
    """Cut a text into chunks that overlap.

    Args:
        ids: Of the text alone, more than fit.
        limit: Most tokens of a chunk.
        frame: What stands around each piece.
        overlap: Tokens that a chunk has in common with the one before it; None takes a tenth of the limit.
        where: What errors call the text.

    Returns:
        The ids of each chunk, at most `limit`. All but the last one have as many as fit.

    Raises:
        InputError: If the frame leaves no room.
        OptionError: If the overlap takes all of it.
    """
    room = limit - len(frame)
    if room < 1:
        raise InputError(f"{where}: its prompt leaves no room for text: {len(frame)} of at most {limit} tokens")
    if overlap is None:
        overlap = min(int(_OVERLAP_SHARE * limit), room // 2)
    if overlap >= room:
        raise OptionError(f"overlap: {overlap}, but a chunk has room for only {room} tokens of text")
    # The last piece is the first one that reaches the end.
    starts = range(0, max(1, len(ids) - overlap), room - overlap)
    return [frame.around(ids[start : start + room]) for start in starts]


def _equal(ids: Sequence[int], others: Sequence[int]) -> int:
    """How many ids at the beginning are the same."""
    pairs = zip(ids, others, strict=False)
    return next((place for place, (mine, other) in enumerate(pairs) if mine != other), min(len(ids), len(others)))
