"""Shared pieces of the unit tests: senders that record, small requests, and tiny random checkpoints."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import models, pre_tokenizers, processors

from lazuli.errors import LazuliError
from lazuli.options import RequestOptions
from lazuli.outputs.dense import DenseModel
from lazuli.request import Part, Request, UnaryRequest

# Long enough for a loaded machine; only a broken test ever waits so long.
PATIENCE_S = 10.0


class RecordingSender:
    """Keeps what a request sends, and complains about anything after the last word."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.finals: list[bool] = []
        self.errors: list[LazuliError] = []
        self.after_end: list[Any] = []
        self.prepared: list[Part] = []
        self.cancelled = False
        self._ended = threading.Event()

    def prepare(self, part: Part) -> None:
        self.prepared.append(part)

    def send(self, part: Part, *, final: bool) -> None:
        if self._ended.is_set():
            self.after_end.append(part)
        self.parts.append(part)
        self.finals.append(final)
        if final:
            self._ended.set()

    def send_error(self, error: LazuliError) -> None:
        if self._ended.is_set():
            self.after_end.append(error)
        self.errors.append(error)
        self._ended.set()

    def is_cancelled(self) -> bool:
        if self._ended.is_set():
            self.after_end.append("is_cancelled")
        return self.cancelled

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def wait(self) -> "RecordingSender":
        assert self._ended.wait(PATIENCE_S), "the request was never answered"
        return self

    def embedding(self, name: str = "embedding") -> np.ndarray:
        """The vectors by row; checks that each row came once, and that the last part alone was final."""
        assert not self.errors, self.errors
        assert not self.after_end
        assert self.finals == [False] * (len(self.finals) - 1) + [True]
        index = np.concatenate([part.index for part in self.parts])
        assert sorted(index.tolist()) == list(range(len(index)))
        vectors = np.concatenate([part.outputs[name] for part in self.parts])
        ordered = np.empty_like(vectors)
        ordered[index] = vectors
        return ordered

    def error(self) -> LazuliError:
        assert len(self.errors) == 1
        assert not self.after_end
        assert not any(self.finals)
        return self.errors[0]


@pytest.fixture
def make_sender() -> type[RecordingSender]:
    return RecordingSender


@pytest.fixture
def make_request() -> Callable[..., Request]:
    """Make a request of rows of the given lengths; row r of request `tag` holds the ids tag, tag, ..."""

    def make(
        *lengths: int,
        tag: int = 1,
        cls: type[Request] = UnaryRequest,
        sender: Any = None,
        normalize: bool = False,
        width: int = 2,
        **options: Any,
    ) -> Request:
        rows = [np.full(length, tag, dtype=np.int32) for length in lengths]
        form = DenseModel(width, normalize).choose(RequestOptions(**options))
        return cls(rows, form, sender or RecordingSender())

    return make


@pytest.fixture
def wait_until_blocked() -> Callable[[threading.Condition], None]:
    """Wait until one thread waits on a condition of the scheduler."""

    def wait(condition: threading.Condition) -> None:
        for _ in range(10_000):
            with condition:
                if condition._waiters:  # type: ignore[attr-defined]
                    return
            time.sleep(0.001)
        pytest.fail("no thread ever waited")

    return wait


def bert_config(**changes: Any) -> dict[str, Any]:
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "vocab_size": 100,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    return config | changes


def bert_tensors(config: dict[str, Any], seed: int = 0, scale: float = 0.3) -> dict[str, torch.Tensor]:
    """Random weights under the names of transformers; around 1 where a norm scales."""
    size, inner = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], size),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], size),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], size),
        "embeddings.LayerNorm.weight": (size,),
        "embeddings.LayerNorm.bias": (size,),
        "pooler.dense.weight": (size, size),
        "pooler.dense.bias": (size,),
    }
    for layer in range(config["num_hidden_layers"]):
        for name, rows, columns in (
            ("attention.self.query", size, size),
            ("attention.self.key", size, size),
            ("attention.self.value", size, size),
            ("attention.output.dense", size, size),
            ("intermediate.dense", inner, size),
            ("output.dense", size, inner),
        ):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (rows, columns)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (size,)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (size,)
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(shape, generator=generator) * scale for name, shape in shapes.items()}
    return {name: tensor + name.endswith("LayerNorm.weight") for name, tensor in tensors.items()}


@pytest.fixture(scope="session")
def write_bert() -> Callable[..., Path]:
    """Write a tiny random BERT checkpoint into a folder."""

    def write(
        folder: Path,
        *,
        prefix: str = "",
        tensors: dict[str, torch.Tensor] | None = None,
        modules: bool = True,
        pooling: str = "mean",
        **changes: Any,
    ) -> Path:
        config = bert_config(**changes)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        weights = bert_tensors(config) if tensors is None else tensors
        save_file({prefix + name: tensor for name, tensor in weights.items()}, str(folder / "model.safetensors"))
        if modules:
            names = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
            entries = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in names.items()]
            (folder / "modules.json").write_text(json.dumps(entries))
            (folder / "1_Pooling").mkdir(exist_ok=True)
            (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
        return folder

    return write


@pytest.fixture(scope="session")
def make_bert_tensors() -> Callable[..., dict[str, torch.Tensor]]:
    """The weights that `write_bert` writes, to be changed before they are written."""
    return lambda seed=0, scale=0.3, **changes: bert_tensors(bert_config(**changes), seed, scale)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory, write_bert: Callable[..., Path]) -> Path:
    """A random BERT of 2 layers, 32 dimensions, 100 ids and 64 positions."""
    return write_bert(tmp_path_factory.mktemp("tiny") / "bert")


@pytest.fixture
def write_tokenizer():
    """Write a tokenizer of the words w0, w1, ... and the special tokens of BERT."""

    def write(folder, vocab_size=100):
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(vocab_size - 4))]
        tokenizer = tokenizers.Tokenizer(
            models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tokenizer.save(str(folder / "tokenizer.json"))

    return write


@pytest.fixture
def write_classifier(tmp_path, write_tokenizer):
    """Write a random BERT with a head, as transformers does."""

    def write(name, **changes):
        from transformers import BertConfig, BertForSequenceClassification

        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
        config = BertConfig(**sizes, vocab_size=100, max_position_embeddings=64, **changes)
        folder = tmp_path / name
        BertForSequenceClassification(config).save_pretrained(folder)
        write_tokenizer(folder)
        return folder

    return write


@pytest.fixture
def reranker(write_classifier):
    """A cross-encoder of 32 dimensions."""
    return write_classifier("cross-encoder", num_labels=1)
