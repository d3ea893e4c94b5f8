"""What makes scores and probabilities out of logits, on the host: there are few of them."""

import numpy as np

from lazuli.heads.head_config import IDENTITY, SIGMOID, SOFTMAX


def activate(logits: np.ndarray, activation: str) -> np.ndarray:
    """Apply an activation to finite logits.

    Args:
        logits: [K, L] float32.
        activation: `identity`, `sigmoid`, or `softmax` over the L.

    Returns:
        [K, L] float32; the logits themselves for `identity`.

    Raises:
        ValueError: If the activation is unknown.
    """
    if activation == IDENTITY:
        return logits
    exact = logits.astype(np.float64)
    if activation == SIGMOID:
        return _divide(1.0, 1.0 + np.exp(-np.clip(exact, -80.0, None)))
    if activation == SOFTMAX:
        powers = np.exp(exact - exact.max(axis=1, keepdims=True))
        return _divide(powers, powers.sum(axis=1, keepdims=True))
    raise ValueError(f"unknown activation {activation!r}")


def _divide(above: np.ndarray | float, below: np.ndarray) -> np.ndarray:
    quotient: np.ndarray = np.divide(above, below).astype(np.float32)
    return quotient
