"""The answers that others are held against: of a library, or out of a file.

Takes the name of one and a question, returns answers.
"""

import importlib.util
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.heads.task import EMBED, RERANK, scores_by_vectors
from lazuli.options import ENCODINGS
from lazuli.repository.task_config import ReaderConfig
from lazuli.tokenwise.facts import DENSE, read_token_facts
from lazuli.verify.answers import KINDS, Answers, Scores, TokenVectors
from lazuli.verify.model import Model, ask
from lazuli.verify.question import Question
from lazuli.verify.reading import Reading


def _transformers(checkpoint: Checkpoint, reading: Reading) -> Model:
    from lazuli.verify.transformers_model import TransformersModel

    return TransformersModel(checkpoint, reading)


def _sentence_transformers(checkpoint: Checkpoint, reading: Reading) -> Model:
    from lazuli.verify.sentence_transformers_model import SentenceTransformersModel

    return SentenceTransformersModel(checkpoint, reading)


LIBRARIES: dict[str, Callable[[Checkpoint, Reading], Model]] = {
    "transformers": _transformers,
    "sentence-transformers": _sentence_transformers,
}


def check_reference(reference: str) -> None:
    """See that there is such a reference, before anything is computed.

    Raises:
        ConfigError: If it is neither a library that is installed nor a file.
    """
    if reference not in LIBRARIES:
        if not Path(reference).is_file():
            raise ConfigError(f"reference: {reference!r} is neither a file nor one of {', '.join(LIBRARIES)}")
    elif importlib.util.find_spec(reference.replace("-", "_")) is None:
        raise ConfigError(f"reference: {reference} is not installed; pip install {reference}")


def reference_answers(reference: str, checkpoint: Checkpoint, reader: ReaderConfig, question: Question) -> Answers:
    """What a model's answers are held against; of encoded vectors, those in float32.

    Args:
        reference: A library, or a file that `save` wrote; it is there.
        checkpoint: For a library.
        reader: Parameters of what reads the texts.
        question: What the model was asked.

    Raises:
        ConfigError: If the reference cannot answer.
    """
    if question.output in ENCODINGS:
        question = replace(question, output="float32")
    if reference not in LIBRARIES:
        return load(Path(reference), question)
    model = LIBRARIES[reference](checkpoint, Reading.of(checkpoint, reader))
    if question.task == RERANK and scores_by_vectors(checkpoint):
        return _scores_of_vectors(model, checkpoint, question)
    return ask(model, question, checkpoint)


def _scores_of_vectors(model: Model, checkpoint: Checkpoint, question: Question) -> Scores:
    """What a model that reads each text by itself makes of pairs."""
    facts = read_token_facts(checkpoint)
    if len(facts.outputs) > 1:
        raise ConfigError(
            f"reference: {model.name} does not combine scores by {', '.join(facts.outputs)}; "
            "pass a file (--save writes one)"
        )
    output = "float32" if facts.outputs[0] == DENSE else facts.outputs[0]
    answers: Any = ask(model, replace(question, task=EMBED, output=output), checkpoint)
    scores: np.ndarray = answers.scores()
    if isinstance(answers, TokenVectors) and facts.multi is not None and facts.multi.mean:
        scores = scores / np.array([len(query) for query in answers.queries])[:, None]
    values = np.full(scores.shape, np.nan)
    np.put_along_axis(values, question.candidates, np.take_along_axis(scores, question.candidates, axis=1), axis=1)
    return Scores(values)


def save(path: Path, answers: Answers) -> None:
    """Write answers to an `.npz` file, as a reference for later.

    Raises:
        ConfigError: If it cannot be written.
    """
    try:
        with path.open("wb") as file:
            np.savez_compressed(file, **answers.arrays())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None


def load(path: Path, question: Question) -> Answers:
    """Read what `save` wrote.

    Raises:
        ConfigError: If it is no such file.
    """
    try:
        with np.load(path) as content:
            return KINDS[question.kind].from_arrays(content)
    except (OSError, EOFError, ValueError, KeyError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"reference: {path} does not hold {_CONTENTS[question.kind]} ({error})") from None


_VECTORS = "queries and documents"
_CONTENTS = {
    "float32": _VECTORS,
    "sparse": f"{_VECTORS}, a weight for each id",
    "multi": f"{_VECTORS} of three dimensions, queries_count and documents_count",
    "scores": "scores, [queries, documents]",
    "labels": "probabilities and labels",
}
