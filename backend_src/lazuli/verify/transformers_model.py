"""`transformers` in float32 on the CPU, one text at a time: no padding, and nothing of ours but what it has not.

Takes a checkpoint, answers as `model.Model` has it.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.heads.head_config import read_head_config
from lazuli.heads.task import CLASSIFY, RERANK, read_labels
from lazuli.pairs.config import PairTokenizerConfig
from lazuli.verify.answers import Labels
from lazuli.verify.model import Model
from lazuli.verify.reading import Reading


class TransformersModel(Model):
    """A model of any task, but for what only sentence-transformers or others add."""

    name = "transformers"

    def __init__(self, checkpoint: Checkpoint, reading: Reading) -> None:
        """Load its tokenizer; its weights follow when it is known what for.

        Raises:
            ConfigError: If it cannot be loaded.
        """
        from transformers import AutoTokenizer
        from transformers.utils import logging as transformers_logging

        quiet: Any = transformers_logging
        quiet.disable_progress_bar()
        self._checkpoint = checkpoint
        self._reading = reading
        self._tokenizer: Any = self._load(AutoTokenizer)

    def dense(self, texts: Sequence[str], input_type: str, encoding: str = "float32") -> np.ndarray:
        """See `Model`."""
        if self._checkpoint.dense:
            raise ConfigError("reference: transformers knows nothing of Dense modules; pass sentence-transformers")
        prompt = self._reading.prompts[input_type]
        return self._finish([self._pool(self._hidden(self._encode(prompt + text))) for text in texts])

    def chunks(self, documents: Sequence[Sequence[str]], input_type: str, encoding: str = "float32") -> np.ndarray:
        """See `Model`; which tokens belong to which chunk is read by our tokenizer."""
        from lazuli.context.config import ContextTokenizerConfig
        from lazuli.context.input import BETWEEN_MARK
        from lazuli.context.options import ContextOptions
        from lazuli.context.tokenizer import ContextTokenizer

        reader = self._reading.reader
        assert isinstance(reader, ContextTokenizerConfig), "the task has no other"
        tokenizer = ContextTokenizer.from_config(reader)
        vectors = []
        for chunks in documents:
            one = np.zeros((len(chunks), 1), dtype=np.int32)
            ids, mask = tokenizer.tokenize(chunks, one, ContextOptions(input_type=input_type))
            hidden = self._hidden({"input_ids": ids[mask != 0]})
            owners = np.repeat(np.arange(len(chunks)), (mask != 0).sum(axis=1))
            inside = mask[mask != 0] != BETWEEN_MARK
            vectors += [hidden[(owners == number) & inside].mean(axis=0) for number in range(len(chunks))]
        return self._finish(vectors)

    def scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """See `Model`."""
        read = self._encode_prompt if self._template == "qwen3" else self._encode_pair
        return np.array([self._score(self._logits(read(query, document))) for document in documents])

    def labels(self, texts: Sequence[str]) -> Labels:
        """See `Model`."""
        from lazuli.heads.activation import activate

        logits = np.stack([self._logits(self._encode(text)) for text in texts])
        activation = read_head_config(self._checkpoint, CLASSIFY).activation
        return Labels(activate(logits, activation), read_labels(self._checkpoint))

    @cached_property
    def _trunk(self) -> Any:
        from transformers import AutoModel

        return self._load(AutoModel)

    @cached_property
    def _with_head(self) -> Any:
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

        is_language_model = self._checkpoint.architecture.endswith("ForCausalLM")
        return self._load(AutoModelForCausalLM if is_language_model else AutoModelForSequenceClassification)

    @cached_property
    def _template(self) -> str:
        from lazuli.pairs.tokenizer import choose_template

        return choose_template(self._pair_reader, self._checkpoint)

    @property
    def _pair_reader(self) -> PairTokenizerConfig:
        reader = self._reading.reader
        assert isinstance(reader, PairTokenizerConfig), "the task has no other"
        return reader

    def _load(self, kind: Any) -> Any:
        import torch

        path = self._checkpoint.path
        try:
            if "Tokenizer" in kind.__name__:
                return kind.from_pretrained(path)
            return kind.from_pretrained(path, dtype=torch.float32).eval()
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{path}: transformers cannot load it ({error})") from None

    def _encode(self, text: str) -> Any:
        return self._tokenizer(text, truncation=True, max_length=self._reading.max_seq_length)

    def _encode_pair(self, query: str, document: str) -> Any:
        from lazuli.pairs.tokenizer import choose_truncation

        limit = self._reading.max_seq_length
        truncation = choose_truncation(self._pair_reader, self._checkpoint)
        if truncation == "only_second":  # and of the first what is beyond three quarters
            ids = self._tokenizer(query, add_special_tokens=False)["input_ids"]
            if len(ids) > limit * 3 // 4:
                query = self._tokenizer.decode(ids[: limit * 3 // 4])
        return self._tokenizer(query, document, truncation=truncation, max_length=limit)

    def _encode_prompt(self, query: str, document: str) -> Any:
        """As the card of Qwen3-Reranker has it: what is too long of the part with the texts is cut at its end."""
        from lazuli.pairs.prompt import AFTER, BEFORE, DEFAULT_INSTRUCTION

        reader = self._pair_reader
        body = (
            f"<Instruct>: {reader.default_instruction or DEFAULT_INSTRUCTION}\n<Query>: {query}\n<Document>: {document}"
        )
        before, inner, after = (
            self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in (BEFORE, body, AFTER)
        )
        room = self._reading.max_seq_length - len(before) - len(after)
        return {"input_ids": [*before, *inner[:room], *after]}

    def _hidden(self, encoded: Any) -> np.ndarray:
        hidden: np.ndarray = self._run(self._trunk, encoded).last_hidden_state[0].numpy()
        return hidden

    def _logits(self, encoded: Any) -> np.ndarray:
        logits: np.ndarray = self._run(self._with_head, encoded).logits[0].numpy()
        return logits

    def _run(self, model: Any, encoded: Any) -> Any:
        import torch

        with torch.inference_mode():
            return model(**{name: torch.from_numpy(np.array([ids])) for name, ids in encoded.items()})

    def _score(self, logits: np.ndarray) -> float:
        """The one logit of a classifier; of a language model, at its last token, that of yes without that of no."""
        answers = read_head_config(self._checkpoint, RERANK).answers
        if answers is None:
            return float(logits[0])
        last = logits[-1]
        return float(last[answers.yes] - (0 if answers.no is None else last[answers.no]))

    def _pool(self, hidden: np.ndarray) -> np.ndarray:
        pooling = self._checkpoint.pooling
        if pooling == "mean":
            mean: np.ndarray = hidden.mean(axis=0)
            return mean
        row: np.ndarray = hidden[0 if pooling == "cls" else -1]
        return row

    def _finish(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        vectors: np.ndarray = np.stack(rows)
        if self._checkpoint.normalize:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors
