"""Which outputs of single tokens a checkpoint has, and where their weights are.

Takes a checkpoint, returns what its files say. Three kinds are known: bge-m3, which has two layers beside its vectors;
SPLADE, which is a masked language model with a pooling of its own; late interaction (ColBERT), which has one vector a
token, as sentence-transformers and PyLate write it. Knows nothing of torch: the tokenizer process uses it too.
"""

import json
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazuli.checkpoint import Checkpoint, DenseModule, read_dense
from lazuli.errors import ConfigError
from lazuli.late_interaction import PYLATE_MARKS
from lazuli.tokenizer_definition import read_definition, token_ids

DENSE, SPARSE, MULTI = "dense", "sparse", "multi"
_SUFFIXES = (".safetensors", ".pt")
_BGE_M3 = ("sparse_linear", "colbert_linear")
# FlagEmbedding gives no weight to these.
_UNWEIGHTED = ("cls_token", "eos_token", "pad_token", "unk_token")
_XLM_ROBERTA_SPECIAL = frozenset({0, 1, 2, 3})


@dataclass(frozen=True)
class SparseFacts:
    """How weights of ids are made.

    Attributes:
        file: Of the layer that weighs each token (bge-m3); None: the weights are those of a masked language model.
        unweighted_ids: Ids that get no weight.
        log_twice: Whether log(1 + x) is taken twice, as OpenSearch's models do.
    """

    file: Path | None
    unweighted_ids: frozenset[int] = frozenset()
    log_twice: bool = False


@dataclass(frozen=True)
class Expansion:
    """What is appended to short queries.

    Attributes:
        length: Tokens that a query has at least.
        token_id: What is appended.
        attend: Whether the other tokens look at it.
    """

    length: int
    token_id: int
    attend: bool


@dataclass(frozen=True)
class MultiFacts:
    """How the vectors of tokens are made; they are of unit length.

    Attributes:
        file: Of the one layer (bge-m3), or None.
        layers: Of late interaction, in their order.
        skip_first: Whether the first token of a text has no vector.
        skipped_ids: Ids that have no vector in a document, for the most part punctuation.
        mean: Whether a score is the mean over the tokens of a query, in place of the sum.
        expansion: Of short queries, or None.
    """

    file: Path | None = None
    layers: tuple[DenseModule, ...] = ()
    skip_first: bool = False
    skipped_ids: frozenset[int] = frozenset()
    mean: bool = False
    expansion: Expansion | None = None


@dataclass(frozen=True)
class TokenFacts:
    """What a checkpoint can answer.

    Attributes:
        dense: Whether it has one vector a text.
        sparse: How weights of ids are made, or None.
        multi: How vectors of tokens are made, or None.
    """

    dense: bool = True
    sparse: SparseFacts | None = None
    multi: MultiFacts | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what there is; the first is what a request gets that does not say."""
        there = {DENSE: self.dense, SPARSE: self.sparse is not None, MULTI: self.multi is not None}
        return tuple(name for name, is_there in there.items() if is_there)


def read_token_facts(checkpoint: Checkpoint) -> TokenFacts:
    """Look at the modules and files of a checkpoint.

    Raises:
        ConfigError: If they ask for something that is not supported.
    """
    names = [name for name, _ in checkpoint.modules]
    if "SpladePooling" in names:
        return TokenFacts(dense=False, sparse=_read_splade(checkpoint))
    if checkpoint.late_interaction:
        return TokenFacts(dense=False, multi=_read_late_interaction(checkpoint))
    sparse, multi = (_find(checkpoint.path, name) for name in _BGE_M3)
    if (sparse is None) != (multi is None):
        there, missing = _BGE_M3 if multi is None else reversed(_BGE_M3)
        raise ConfigError(
            f"checkpoint: {checkpoint.path} has {there} but no {missing} ({' or '.join(_SUFFIXES)}), as if it was not "
            "copied to its end; a model like bge-m3 has both"
        )
    return TokenFacts(
        sparse=SparseFacts(sparse, _unweighted_ids(checkpoint.path)) if sparse is not None else None,
        multi=MultiFacts(file=multi, skip_first=True, mean=True) if multi is not None else None,
    )


def hides_tokens(checkpoint: Checkpoint) -> bool:
    """Whether queries get tokens that the others do not look at."""
    multi = read_token_facts(checkpoint).multi if checkpoint.late_interaction else None
    return multi is not None and multi.expansion is not None and not multi.expansion.attend


def _find(folder: Path, name: str) -> Path | None:
    """The weights of one of bge-m3's layers: its own files are pickles of tensors."""
    return next((file for suffix in _SUFFIXES if (file := folder / f"{name}{suffix}").is_file()), None)


def _read_splade(checkpoint: Checkpoint) -> SparseFacts:
    folder = next(folder for name, folder in checkpoint.modules if name == "SpladePooling")
    file = checkpoint.path / folder / "config.json"
    config = _read_object(file)
    strategy, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    if strategy != "max":
        raise ConfigError(f"{file}: pooling_strategy: {strategy!r} is not supported, only 'max' is")
    if activation not in ("relu", "log1p_relu"):
        raise ConfigError(f"{file}: activation_function: {activation!r} is not supported, only relu, log1p_relu are")
    return SparseFacts(file=None, log_twice=activation == "log1p_relu")


def _read_late_interaction(checkpoint: Checkpoint) -> MultiFacts:
    folders = [checkpoint.path / folder for name, folder in checkpoint.modules if name == "Dense"]
    masks = [checkpoint.path / folder for name, folder in checkpoint.modules if name == "MultiVectorMask"]
    words = checkpoint.sentence_transformers.get("skiplist_words")
    if masks:
        mask = _read_object(masks[0] / "config.json")
        if mask.get("keep_only_token_ids") or mask.get("skiplist_tasks", ["document"]) not in (
            ["document"],
            "document",
        ):
            raise ConfigError(f"{masks[0] / 'config.json'}: only words that documents skip are supported")
        words = mask.get("skiplist_words")
    elif words is None:
        words = list(string.punctuation)  # what PyLate does where a checkpoint does not say
    ids = _token_ids(checkpoint.path)
    return MultiFacts(
        layers=tuple(read_dense(folder, of_tokens=True) for folder in folders),
        skipped_ids=frozenset(ids[word] for word in words or () if word in ids),
        mean=checkpoint.sentence_transformers.get("similarity_fn_name") == "meanmaxsim",
        expansion=_read_expansion(checkpoint, ids),
    )


def _read_expansion(checkpoint: Checkpoint, ids: Mapping[str, int]) -> Expansion | None:
    settings = _said_expansion(checkpoint)
    if settings is None:
        return None
    token, length = settings.get("token") or _mask_token(checkpoint.path), settings.get("length")
    if (
        not isinstance(token, str)
        or token not in ids
        or isinstance(length, bool)
        or not isinstance(length, int)
        or length < 1
    ):
        raise ConfigError(f"{checkpoint.path}: query expansion to {length!r} tokens of {token!r} is not possible")
    return Expansion(min(length, checkpoint.max_positions), ids[token], bool(settings.get("attend")))


def _said_expansion(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    """As sentence-transformers writes it, else as PyLate does, where it is the rule; None if there is none."""
    file = checkpoint.path / "sentence_bert_config.json"
    settings = _read_object(file) if file.is_file() else {}
    flat = checkpoint.sentence_transformers
    for place in (settings, flat):
        if "query_expansion" in place:
            said = place["query_expansion"]
            return said if isinstance(said, dict) else None
    if flat.get("do_query_expansion") is False or not any(mark in flat for mark in PYLATE_MARKS):
        return None
    return {"attend": flat.get("attend_to_expansion_tokens"), "length": flat.get("query_length") or 32}


def _mask_token(folder: Path) -> str | None:
    settings = _read_object(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    token = settings.get("mask_token") or settings.get("eos_token")
    return token.get("content") if isinstance(token, dict) else token


def _unweighted_ids(folder: Path) -> frozenset[int]:
    settings = _read_object(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    tokens = [settings.get(name) for name in _UNWEIGHTED]
    contents = [token.get("content") if isinstance(token, dict) else token for token in tokens]
    ids = _token_ids(folder)
    found = frozenset(ids[content] for content in contents if isinstance(content, str) and content in ids)
    return found or _XLM_ROBERTA_SPECIAL


def _token_ids(folder: Path) -> Mapping[str, int]:
    """Id of each token; empty without a tokenizer."""
    return token_ids(read_definition(folder)) if (folder / "tokenizer.json").is_file() else {}


def _read_object(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"checkpoint: {file} is missing") from None
    except ValueError as error:
        raise ConfigError(f"checkpoint: {file} is not valid JSON ({error})") from None
    if not isinstance(content, dict):
        raise ConfigError(f"checkpoint: {file} must hold an object")
    return content
