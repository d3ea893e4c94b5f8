"""What the answers to requests for scores and for labels hold.

Takes the logits of some rows, returns the outputs that Triton sends: see `AnswerForm` in `lazuli.request`. Knows
nothing of devices.
"""

import numpy as np

from lazuli.errors import NonFiniteError
from lazuli.heads.activation import activate
from lazuli.heads.head_config import IDENTITY, HeadConfig
from lazuli.scoring.options import ClassifyOptions, RerankOptions

# What the options call the absence of an activation.
_NONE = "none"


class ScoreForm:
    """`score`, FP32 [N, 1]: how well each document answers its query."""

    finish = 0

    def __init__(self, head: HeadConfig, options: RerankOptions) -> None:
        """Look at the options: of these, `activation` counts here."""
        asked = options.activation
        self._activation = head.activation if asked is None else IDENTITY if asked == _NONE else asked

    def lay_out(self, token_count: np.ndarray) -> dict[str, np.ndarray]:
        """See `AnswerForm`."""
        return {"score": np.empty((len(token_count), 1), dtype=np.float32)}

    def read(self, rows: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
        """See `AnswerForm`.

        Raises:
            NonFiniteError: If a logit is NaN or Inf.
        """
        _check_finite("score", rows, values)
        return {"score": activate(values, self._activation)}


class LabelForm:
    """`probability`, FP32 [N, L], and `label`, BYTES [N, 1], the best; with `labels`, BYTES [N, L], if asked for."""

    finish = 0

    def __init__(self, head: HeadConfig, options: ClassifyOptions) -> None:
        """Look at the options: of these, `labels` counts here."""
        self._activation = head.activation
        self._names = np.array([name.encode() for name in head.labels], dtype=np.object_)
        self._with_names = options.labels

    def lay_out(self, token_count: np.ndarray) -> dict[str, np.ndarray]:
        """See `AnswerForm`."""
        shape = (len(token_count), len(self._names))
        outputs = {
            "probability": np.empty(shape, dtype=np.float32),
            "label": np.empty((shape[0], 1), dtype=np.object_),
        }
        if self._with_names:
            outputs["labels"] = np.empty(shape, dtype=np.object_)
        return outputs

    def read(self, rows: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
        """See `AnswerForm`.

        Raises:
            NonFiniteError: If a logit is NaN or Inf.
        """
        _check_finite("probability", rows, values)
        # Of the logits: probabilities may be equal by rounding where those are not.
        outputs = {
            "probability": activate(values, self._activation),
            "label": self._names[values.argmax(axis=1)][:, None],
        }
        if self._with_names:
            outputs["labels"] = np.tile(self._names, (len(values), 1))
        return outputs


def _check_finite(name: str, rows: np.ndarray, values: np.ndarray) -> None:
    finite = np.isfinite(values)
    if np.count_nonzero(finite) != finite.size:
        row = int(rows[np.argmin(finite.all(axis=1))])
        raise NonFiniteError(f"{name}[{row}]: the model computed NaN or Inf, so there is no usable value")
