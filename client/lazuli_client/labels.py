"""What a caller gets back for texts that are classified, and how it is made from the outputs of the server.

Takes output tensors by name, returns `Labels`. Does not know protocols.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazuli_client.embeddings import Outputs, column
from lazuli_client.errors import ServerError
from lazuli_client.reading import Reading


@dataclass(frozen=True)
class Labels:
    """Labels of N texts, in the order of the input.

    Attributes:
        labels: The best label of each text.
        probabilities: [N, L], float32; of each label of the model. They add up to 1, but not where several labels can
            hold at once.
        names: The L labels, in the order of `probabilities`.
        token_counts: [N], int32; tokens that the model saw, special tokens included.
        truncated: [N], bool; whether the text was cut to the model's limit.
    """

    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]
    names: tuple[str, ...]
    token_counts: NDArray[np.int32]
    truncated: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.labels)


def _read(outputs: Outputs, num_rows: int) -> Labels:
    labels = column(outputs, "label", num_rows)
    probabilities = outputs.get("probability", np.zeros(0))
    if probabilities.ndim != 2 or len(probabilities) != num_rows:
        shape = list(probabilities.shape)
        raise ServerError(f"probability: the server answered shape {shape} for {num_rows} rows")
    # Only the first request of a batch asks for them.
    names = outputs["labels"][0] if "labels" in outputs else ()
    return Labels(
        tuple(map(_as_text, labels)),
        probabilities.astype(np.float32, copy=False),
        tuple(map(_as_text, names)),
        column(outputs, "token_count", num_rows).astype(np.int32),
        column(outputs, "truncated", num_rows).astype(np.bool_),
    )


def _join(pieces: Sequence[Labels]) -> Labels:
    widths = {piece.probabilities.shape[1] for piece in pieces}
    if widths != {len(pieces[0].names)}:
        raise ServerError(f"probability: the server answered {sorted(widths)} values for {len(pieces[0].names)} labels")
    return Labels(
        tuple(label for piece in pieces for label in piece.labels),
        np.concatenate([piece.probabilities for piece in pieces]),
        pieces[0].names,
        np.concatenate([piece.token_counts for piece in pieces]),
        np.concatenate([piece.truncated for piece in pieces]),
    )


def _as_text(value: Any) -> str:
    # Over HTTP and gRPC alike tritonclient gives bytes.
    return value.decode() if isinstance(value, bytes) else str(value)


LABELS = Reading(_read, _join)
