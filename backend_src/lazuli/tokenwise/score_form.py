"""The answers to requests for scores of a model that reads query and document each by itself.

Takes a score by each method that the model has, returns the one of the method that a request asks for: see `AnswerForm`
in `lazuli.request`. Knows nothing of devices.
"""

import math

import numpy as np

from lazuli.errors import NonFiniteError, OptionError
from lazuli.heads.activation import activate
from lazuli.heads.head_config import IDENTITY
from lazuli.scoring.options import HYBRID, RerankOptions
from lazuli.tokenwise.facts import TokenFacts

_SIGMOID = "sigmoid"


class PairScoreForm:
    """`score`, FP32 [N, 1]: of one method, or the weighted mean of all, as FlagEmbedding has it for bge-m3."""

    finish = 0

    def __init__(self, facts: TokenFacts, options: RerankOptions) -> None:
        """Look at the options: of these, `method`, `weights` and `activation` count here.

        Raises:
            OptionError: If the model has no such method, or the weights are not usable.
        """
        methods = facts.outputs
        method = options.method or (HYBRID if len(methods) > 1 else methods[0])
        if method != HYBRID and method not in methods:
            raise OptionError(f"method: {method}: the model has no such scores, it has {', '.join(methods)}")
        if options.weights is not None and method != HYBRID:
            raise OptionError(f"weights: only of use with method={HYBRID}, which combines several scores")
        self._weights = (
            _read_weights(options.weights, methods)
            if method == HYBRID
            else np.array([float(name == method) for name in methods])
        )
        self._activation = _SIGMOID if options.activation == _SIGMOID else IDENTITY

    def lay_out(self, token_count: np.ndarray) -> dict[str, np.ndarray]:
        """See `AnswerForm`."""
        return {"score": np.empty((len(token_count), 1), dtype=np.float32)}

    def read(self, rows: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
        """See `AnswerForm`.

        Raises:
            NonFiniteError: If one of the scores that count is NaN or Inf.
        """
        used = np.flatnonzero(self._weights)
        scores = (values[:, used].astype(np.float64) @ self._weights[used, None]).astype(np.float32)
        finite = np.isfinite(scores[:, 0])
        if not finite.all():
            row = int(rows[np.argmin(finite)])
            raise NonFiniteError(f"score[{row}]: the model computed NaN or Inf, so there is no usable value")
        return {"score": activate(scores, self._activation)}


def _read_weights(text: str | None, methods: tuple[str, ...]) -> np.ndarray:
    """Weights that add up to one."""
    if text is None:
        return np.full(len(methods), 1 / len(methods))
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError:
        weights = []
    if len(weights) != len(methods) or not all(math.isfinite(weight) and weight >= 0 for weight in weights):
        raise OptionError(f"weights: must be {len(methods)} numbers from 0 on, of {', '.join(methods)}; got {text!r}")
    if not sum(weights):
        raise OptionError(f"weights: {text!r}: one of them must be above 0")
    return np.array(weights) / sum(weights)
