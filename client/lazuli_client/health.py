"""The result of a health check.

Takes nothing, does nothing: a record that both clients return.
"""

from dataclasses import dataclass

from lazuli_client.errors import LazuliError

# What `health()` embeds. One token, so that the check costs next to nothing.
PROBE_TEXT = "ready"


@dataclass(frozen=True)
class Health:
    """Whether the server embeds, found by embedding.

    Triton's readiness endpoint stays at 200 when a model process has died, so only an inference tells.

    Attributes:
        latency_s: How long the inference took, or how long it took to fail.
        error: Why it is not ready; None if it is.
    """

    latency_s: float
    error: LazuliError | None = None

    @property
    def is_ready(self) -> bool:
        """Whether a real text was embedded."""
        return self.error is None
