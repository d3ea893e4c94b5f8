"""The `reranking` models: token ids of pairs in, scores out. See `engine_model` for how."""

from lazuli import openmp  # noqa: F401 - before anything that imports torch
from lazuli.scoring.options import RerankOptions
from lazuli.scoring.service import RerankService
from lazuli.triton.engine_model import EngineModel


class TritonPythonModel(EngineModel):
    """Triton's interface to scores of pairs."""

    service_type = RerankService
    options_type = RerankOptions
    optional_inputs = ("token_type_ids",)
