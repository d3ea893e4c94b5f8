"""Health checks: what is sent for one, and its result, which both clients return.

Takes the settings of a client, returns a request and a way to read its answer. Sends nothing.
"""

from dataclasses import dataclass
from typing import Any, Literal

from lazuli_client.context import context_requests
from lazuli_client.errors import LazuliError
from lazuli_client.labels import LABELS
from lazuli_client.options import EmbedOptions
from lazuli_client.ranking import SCORES
from lazuli_client.reading import EMBEDDINGS, Reading
from lazuli_client.request import EmbedRequest, text_requests
from lazuli_client.settings import Settings
from lazuli_client.task_options import ClassifyOptions, RerankOptions
from lazuli_client.task_requests import classify_requests, rerank_requests

Task = Literal["embed", "rerank", "classify", "context"]
# What `health()` sends. One token, so that the check costs next to nothing.
PROBE_TEXT = "ready"


@dataclass(frozen=True)
class Health:
    """Whether the server answers, found by one inference.

    Triton's readiness endpoint stays at 200 when a model process has died, so only an inference tells.

    Attributes:
        latency_s: How long the inference took, or how long it took to fail.
        error: Why it is not ready; None if it is.
    """

    latency_s: float
    error: LazuliError | None = None

    @property
    def is_ready(self) -> bool:
        """Whether a real text was answered."""
        return self.error is None


def probe(settings: Settings, task: Task) -> tuple[EmbedRequest, Reading[Any]]:
    """The smallest request to a model for a task: that of the client, or the usual one.

    Raises:
        ValueError: If there is no such task.
    """
    if task == "embed":
        return next(text_requests(settings, [PROBE_TEXT], EmbedOptions())), EMBEDDINGS
    if task == "context":
        return next(context_requests(settings, [[PROBE_TEXT]], EmbedOptions())), EMBEDDINGS
    if task == "rerank":
        return next(rerank_requests(settings, PROBE_TEXT, [PROBE_TEXT], RerankOptions())), SCORES
    if task == "classify":
        return next(classify_requests(settings, [[PROBE_TEXT]], ClassifyOptions())), LABELS
    raise ValueError(f"task: must be one of embed, rerank, classify, context, got {task!r}")
