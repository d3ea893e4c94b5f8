"""The `classify_tokenizer` model: as `tokenizer`, for requests that ask for labels and so have other options."""

from lazuli.options import RequestOptions
from lazuli.scoring.options import ClassifyOptions
from lazuli.triton import tokenizer


class TritonPythonModel(tokenizer.TritonPythonModel):
    """Triton's interface to `lazuli.tokenizer`."""

    def _read_options(self, parameters: str) -> RequestOptions:
        return ClassifyOptions.from_json(parameters).of_texts()
