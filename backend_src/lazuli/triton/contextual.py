"""The `contextual` models: token ids of the chunks of documents in, a vector of each chunk out.

See `engine_model` for how.
"""

from lazuli import openmp  # noqa: F401 - before anything that imports torch
from lazuli.context.options import ContextOptions
from lazuli.context.service import ContextService
from lazuli.triton.engine_model import EngineModel


class TritonPythonModel(EngineModel):
    """Triton's interface to vectors of chunks."""

    service_type = ContextService
    options_type = ContextOptions
    inputs = ("input_ids", "attention_mask", "document")
