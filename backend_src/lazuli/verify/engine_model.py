"""Our engine and tokenizer in this process, by way of the services that answer requests.

Takes the parameters of a model, answers as `model.Model` has it.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.errors import LazuliError
from lazuli.heads.task import CLASSIFY, CONTEXT, RERANK
from lazuli.options import RequestOptions
from lazuli.pairs.config import PairTokenizerConfig
from lazuli.repository.task_config import ReaderConfig
from lazuli.request import Part
from lazuli.scoring.options import ClassifyOptions, RerankOptions
from lazuli.verify.answers import Labels
from lazuli.verify.model import Model, Sparse

_Outputs = Mapping[str, np.ndarray]
_MAX_ANSWER_MB = 1 << 20


class _Receiver:
    """A `Sender` that somebody waits for."""

    def __init__(self) -> None:
        self.answer: Future[_Outputs] = Future()

    def prepare(self, part: Part) -> None:
        """Nothing is to be done."""

    def send(self, part: Part, *, final: bool) -> None:
        """Take the one part that a unary request has."""
        self.answer.set_result({name: values.copy() for name, values in part.outputs.items()})

    def send_error(self, error: LazuliError) -> None:
        """Take the error."""
        self.answer.set_exception(error)

    def is_cancelled(self) -> bool:
        """Somebody waits until the answer is there."""
        return False


class EngineModel(Model):
    """A model of any task."""

    def __init__(self, engine: EngineConfig, reader: ReaderConfig) -> None:
        """Load it.

        Args:
            engine: Parameters of the engine.
            reader: Parameters of what reads its texts.

        Raises:
            ConfigError: If one of them, or the checkpoint, is unusable.
        """
        self._tokenizer = _load_tokenizer(reader)
        # Answers stay in this process, so they may be larger than gRPC's.
        self._service = _service_type(engine.task)(replace(engine, max_answer_mb=_MAX_ANSWER_MB), streaming=False)

    def close(self) -> None:
        """End its threads."""
        self._service.close()

    def dense(self, texts: Sequence[str], input_type: str, encoding: str = "float32") -> np.ndarray:
        """See `Model`."""
        (values,) = self._embed(texts, input_type, encoding).values()
        return values

    def sparse(self, texts: Sequence[str], input_type: str) -> list[Sparse]:
        """See `Model`."""
        outputs = self._embed(texts, input_type, "sparse")
        rows = zip(outputs["sparse_ids"], outputs["sparse_weights"], strict=True)
        return [(ids[ids >= 0], weights[ids >= 0]) for ids, weights in rows]

    def multi(self, texts: Sequence[str], input_type: str) -> list[np.ndarray]:
        """See `Model`."""
        outputs = self._embed(texts, input_type, "multi")
        counts = outputs["multi_vector_count"][:, 0]
        return [vectors[:count] for vectors, count in zip(outputs["multi_vector"], counts, strict=True)]

    def chunks(self, documents: Sequence[Sequence[str]], input_type: str, encoding: str = "float32") -> np.ndarray:
        """See `Model`."""
        from lazuli.context.options import ContextOptions

        options = ContextOptions(input_type=input_type, output=(encoding,))
        numbers = np.repeat(np.arange(len(documents), dtype=np.int32), list(map(len, documents)))[:, None]
        tensors = self._tokenizer.tokenize([text for chunks in documents for text in chunks], numbers, options)
        (values,) = self._submit(*tensors, numbers, options).values()
        return values

    def scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """See `Model`."""
        from lazuli.pairs.tokenizer import pad_pairs

        options = RerankOptions(activation="none")
        tensors = pad_pairs(self._tokenizer.tokenize([query] * len(documents), documents, options))
        names = ("input_ids", "attention_mask", "token_type_ids")
        outputs = self._submit(*(tensors[name] for name in names), options)
        return outputs["score"][:, 0]

    def labels(self, texts: Sequence[str]) -> Labels:
        """See `Model`."""
        from lazuli.tokenizer import pad

        options = ClassifyOptions(truncate="end", labels=True)
        outputs = self._submit(*pad(self._tokenizer.tokenize(texts, options.of_texts())), None, options)
        return Labels(outputs["probability"], tuple(name.decode() for name in outputs["labels"][0]))

    def _embed(self, texts: Sequence[str], input_type: str, output: str) -> _Outputs:
        from lazuli.tokenizer import pad

        options = RequestOptions(input_type=input_type, truncate="end", output=(output,))
        return self._submit(*pad(self._tokenizer.tokenize(texts, options)), options)

    def _submit(self, *arguments: Any) -> _Outputs:
        receiver = _Receiver()
        self._service.submit(*arguments, receiver)
        return receiver.answer.result()


def _load_tokenizer(reader: ReaderConfig) -> Any:
    from lazuli.context.config import ContextTokenizerConfig
    from lazuli.context.tokenizer import ContextTokenizer
    from lazuli.pairs.tokenizer import load_pair_tokenizer
    from lazuli.tokenizer import TextTokenizer

    if isinstance(reader, PairTokenizerConfig):
        return load_pair_tokenizer(reader)
    if isinstance(reader, ContextTokenizerConfig):
        return ContextTokenizer.from_config(reader)
    assert isinstance(reader, TokenizerConfig), "there is no other kind"
    return TextTokenizer.from_config(reader)


def _service_type(task: str) -> Any:
    from lazuli.context.service import ContextService
    from lazuli.scoring.service import ClassifyService, RerankService
    from lazuli.service import EmbeddingService

    return {RERANK: RerankService, CLASSIFY: ClassifyService, CONTEXT: ContextService}.get(task, EmbeddingService)
