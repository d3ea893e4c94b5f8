"""The `embedding` and `embedding_stream` models: token ids in, vectors out.

One class for both: whether the model's transaction policy is decoupled decides if a request is answered in parts.
"""

from lazuli import openmp  # noqa: F401 - before anything that imports torch
from lazuli.options import RequestOptions
from lazuli.service import EmbeddingService
from lazuli.triton.engine_model import EngineModel


class TritonPythonModel(EngineModel):
    """Triton's interface to `lazuli.service`."""

    service_type = EmbeddingService
    options_type = RequestOptions
