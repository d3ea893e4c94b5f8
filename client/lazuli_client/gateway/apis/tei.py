"""The API of text-embeddings-inference: `/embed`, `/embed_sparse`, `/predict`, and `/` for the first of them.

Takes its messages, returns its answers; they have no field for the model, so the first one of its kind answers.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from lazuli_client.gateway.apis.encode import as_base64, as_numbers, join_rows
from lazuli_client.gateway.apis.endpoint import Endpoint
from lazuli_client.gateway.apis.jina import TEI_OPTIONS, truncation
from lazuli_client.gateway.apis.ranks import refuse
from lazuli_client.gateway.errors import invalid
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.state import Gateway
from lazuli_client.labels import Labels
from lazuli_client.options import EmbedOptions
from lazuli_client.task_options import ClassifyOptions

Inputs = Annotated[
    str | list[str],
    Meta(
        description="A text, or several.",
        extra_json_schema={
            "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
        },
    ),
]
Direction = Literal["Left", "left", "Right", "right"]


TextsToLabel = Annotated[
    str | list[str | list[str]],
    Meta(
        description="A text, or several, each in a list of its own. Two strings in one list are a pair: refused.",
        extra_json_schema={
            "oneOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
                {
                    "type": "array",
                    "items": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
                    "minItems": 1,
                },
            ]
        },
    ),
]


class EmbedRequest(Struct, forbid_unknown_fields=True):
    """Texts to embed."""

    inputs: Inputs
    normalize: bool | None = True
    truncate: bool | None = False
    truncation_direction: Direction | None = "Right"
    prompt_name: str | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] | None = "float"


class SparseRequest(Struct, forbid_unknown_fields=True):
    """Texts of which to weigh the words."""

    inputs: Inputs
    truncate: bool | None = False
    truncation_direction: Direction | None = "Right"
    prompt_name: str | None = None


class Parameters(Struct, forbid_unknown_fields=True):
    """What Hugging Face's client can say of labels."""

    top_k: Annotated[int, Meta(ge=1)] | None = None


class PredictRequest(Struct, forbid_unknown_fields=True):
    """Texts to label."""

    inputs: TextsToLabel
    truncate: bool | None = False
    truncation_direction: Direction | None = "Right"
    raw_scores: bool | None = False
    parameters: Parameters | None = None


class SparseValue(Struct):
    """The weight of an id."""

    index: int
    value: float


class Prediction(Struct):
    """A label and its probability."""

    score: float
    label: str


async def embed(gateway: Gateway, body: EmbedRequest, call: Call) -> bytes:
    """Embed."""
    texts = _texts(gateway, body.inputs)
    options = EmbedOptions(
        prompt_name=body.prompt_name,
        truncate=truncation(bool(body.truncate), body.truncation_direction),
        dimensions=body.dimensions,
        normalize=body.normalize is not False,
    )
    answer = await gateway.service.embed(gateway.models.find(None, "embed", "dense"), texts, options, call)
    if not answer.embeddings.shape[1]:
        raise invalid("the model has no dense vectors")
    write = as_base64 if body.encoding_format == "base64" else as_numbers
    return b"[%b]" % await join_rows(answer.embeddings, lambda _, row: write(row), call)


async def embed_sparse(gateway: Gateway, body: SparseRequest, call: Call) -> bytes:
    """Weigh words."""
    texts = _texts(gateway, body.inputs)
    options = EmbedOptions(
        prompt_name=body.prompt_name,
        truncate=truncation(bool(body.truncate), body.truncation_direction),
        output="sparse",
    )
    answer = await gateway.service.embed(gateway.models.find(None, "embed", "sparse"), texts, options, call)
    with call.timings.stage("encode"):
        return msgspec.json.encode(
            [
                [SparseValue(index, value) for index, value in zip(row.ids.tolist(), row.weights.tolist(), strict=True)]
                for row in answer.sparse or ()
            ]
        )


async def predict(gateway: Gateway, body: PredictRequest, call: Call) -> bytes:
    """Label; the labels of a text come best first."""
    refuse("raw_scores: true", body.raw_scores or None)
    texts, is_one = _texts_to_label(body.inputs)
    gateway.check_rows(len(texts), "inputs")
    options = ClassifyOptions(truncate=truncation(bool(body.truncate), body.truncation_direction))
    answer = await gateway.service.classify(gateway.models.find(None, "classify"), texts, options, call)
    top_k = body.parameters.top_k if body.parameters else None
    rows = [_predictions(answer, row, top_k) for row in range(len(texts))]
    return msgspec.json.encode(rows[0] if is_one else rows)


def _texts_to_label(inputs: str | list[str | list[str]]) -> tuple[list[str], bool]:
    """The texts, and whether it is one that is not in a list of texts.

    Raises:
        ApiError: If there are pairs.
    """
    if isinstance(inputs, str):
        return [inputs], True
    if len(inputs) == 1 and isinstance(inputs[0], str):
        return [inputs[0]], True
    texts = []
    for row, one in enumerate(inputs):
        if isinstance(one, str):
            raise invalid("inputs: pairs of texts cannot be labelled; several texts are [[text], [text]]", "inputs")
        if len(one) != 1:
            raise invalid(f"inputs[{row}]: {len(one)} strings, but a text of several is a list of 1", "inputs")
        texts += one
    return texts, False


def _texts(gateway: Gateway, inputs: str | list[str]) -> list[str]:
    texts = [inputs] if isinstance(inputs, str) else inputs
    gateway.check_rows(len(texts), "inputs")
    return texts


def _predictions(answer: Labels, row: int, top_k: int | None) -> list[Prediction]:
    probabilities = answer.probabilities[row]
    best = (-probabilities).argsort(kind="stable")[:top_k]
    return [Prediction(float(probabilities[place]), answer.names[place]) for place in best]


_FIELDS = TEI_OPTIONS | {"text": "inputs"}
_EXAMPLE = {"inputs": ["a blue gem", "a red car"]}
EMBED = Endpoint(
    "/embed", EmbedRequest, list[list[float] | str], embed, _FIELDS, "Vectors (text-embeddings-inference)", _EXAMPLE
)
EMBED_ROOT = Endpoint("/", EmbedRequest, list[list[float] | str], embed, _FIELDS, "As `/embed`", _EXAMPLE)
EMBED_SPARSE = Endpoint(
    "/embed_sparse",
    SparseRequest,
    list[list[SparseValue]],
    embed_sparse,
    _FIELDS,
    "Weights of words (text-embeddings-inference), of models that have them",
    _EXAMPLE,
)
PREDICT = Endpoint(
    "/predict",
    PredictRequest,
    list[list[Prediction] | Prediction],
    predict,
    _FIELDS,
    "Labels (text-embeddings-inference), of models that have them",
    {"inputs": [["a blue gem"], ["a red car"]]},
)
