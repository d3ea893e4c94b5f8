"""The `classification` models: token ids in, probabilities and the best label out. See `engine_model` for how."""

from lazuli import openmp  # noqa: F401 - before anything that imports torch
from lazuli.scoring.options import ClassifyOptions
from lazuli.scoring.service import ClassifyService
from lazuli.triton.engine_model import EngineModel


class TritonPythonModel(EngineModel):
    """Triton's interface to labels of texts."""

    service_type = ClassifyService
    options_type = ClassifyOptions
    optional_inputs = ("token_type_ids",)
