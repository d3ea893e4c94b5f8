"""What a checkpoint says about its head.

Takes a checkpoint and the task, returns the shapes and names of the head's layers, its labels and its activation. Knows
nothing of weights or torch.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.heads.task import RERANK, check_task, has_module, read_labels

IDENTITY, SIGMOID, SOFTMAX = ACTIVATIONS = ("identity", "sigmoid", "softmax")
# Of inner layers; names as `transformers` has them.
INNER_ACTIVATIONS = ("none", "gelu", "relu", "silu", "tanh")
_TORCH_NAMES = {"Identity": IDENTITY, "Sigmoid": SIGMOID, "Softmax": SOFTMAX}


@dataclass(frozen=True)
class LayerConfig:
    """One layer of a head: product, activation, norm.

    Attributes:
        name: Of its tensors, without `.weight` and `.bias`.
        num_in: Size of the vectors that come in.
        num_out: Size of those that go out.
        bias: Whether there is one.
        activation: One of `INNER_ACTIVATIONS`.
        norm: Name of the tensors of the norm behind it, or None.
        norm_bias: Whether that has a bias.
        eps: Of the norm.
    """

    name: str
    num_in: int
    num_out: int
    bias: bool = True
    activation: str = "none"
    norm: str | None = None
    norm_bias: bool = False
    eps: float = 0.0


@dataclass(frozen=True)
class AnswerTokens:
    """A head of a language model, of which two rows count.

    Attributes:
        yes: Id of the token whose logit speaks for a pair.
        no: Id of the one whose logit is taken off; None for nothing.
    """

    yes: int
    no: int | None


@dataclass(frozen=True)
class HeadConfig:
    """What comes behind the model.

    Attributes:
        pooling: `cls`, `mean` or `last`.
        labels: Names of the values, in their order.
        activation: What makes values of logits, unless a request says otherwise: one of `ACTIVATIONS`.
        layers: In their order; empty for the head of a language model.
        answers: The tokens of that head, or None.
    """

    pooling: str
    labels: tuple[str, ...]
    activation: str
    layers: tuple[LayerConfig, ...] = ()
    answers: AnswerTokens | None = None


def read_head_config(checkpoint: Checkpoint, task: str) -> HeadConfig:
    """Read what a task needs of a checkpoint.

    Args:
        checkpoint: Its JSON files.
        task: `rerank` or `classify`.

    Raises:
        ConfigError: If the checkpoint cannot do it, or asks for something that is not supported.
    """
    check_task(checkpoint, task)
    if checkpoint.architecture not in _LAYOUTS:
        supported = ", ".join(_LAYOUTS)
        raise ConfigError(
            f"{checkpoint.path}: the head of {checkpoint.architecture} is not supported; supported: {supported}"
        )
    if checkpoint.dense:
        raise ConfigError(f"{checkpoint.path}: Dense modules before a head are not supported")
    labels = ("yes",) if _is_language_model(checkpoint) else read_labels(checkpoint)
    head = _LAYOUTS[checkpoint.architecture](checkpoint, len(labels))
    activation = _read_score_activation(checkpoint) if task == RERANK else _read_label_activation(checkpoint, labels)
    return HeadConfig(head.pooling, labels, activation, head.layers, head.answers)


@dataclass(frozen=True)
class _Layout:
    """The part of a head that its architecture decides."""

    pooling: str
    layers: tuple[LayerConfig, ...] = ()
    answers: AnswerTokens | None = None


def _bert(checkpoint: Checkpoint, num_labels: int) -> _Layout:
    return _dense_and_projection(checkpoint, num_labels, "pooler.dense", "classifier")


def _roberta(checkpoint: Checkpoint, num_labels: int) -> _Layout:
    return _dense_and_projection(checkpoint, num_labels, "classifier.dense", "classifier.out_proj")


def _dense_and_projection(checkpoint: Checkpoint, num_labels: int, dense: str, projection: str) -> _Layout:
    size = _size(checkpoint)
    layers = (LayerConfig(dense, size, size, activation="tanh"), LayerConfig(projection, size, num_labels))
    return _Layout("cls", layers)


def _modernbert(checkpoint: Checkpoint, num_labels: int) -> _Layout:
    model, size = checkpoint.model, _size(checkpoint)
    pooling = model.get("classifier_pooling", "cls")
    activation = model.get("classifier_activation", "gelu")
    if pooling not in ("cls", "mean"):
        raise ConfigError(f"classifier_pooling: {pooling!r} is not supported, only cls and mean are")
    if activation not in INNER_ACTIVATIONS:
        raise ConfigError(f"classifier_activation: {activation!r} is not one of {', '.join(INNER_ACTIVATIONS[1:])}")
    inner = LayerConfig(
        "head.dense",
        size,
        size,
        bias=bool(model.get("classifier_bias")),
        activation=activation,
        norm="head.norm",
        norm_bias=bool(model.get("norm_bias")),
        eps=float(model.get("norm_eps", 1e-5)),
    )
    return _Layout(pooling, (inner, LayerConfig("classifier", size, num_labels)))


def _qwen3(checkpoint: Checkpoint, num_labels: int) -> _Layout:
    return _Layout("last", (LayerConfig("score", _size(checkpoint), num_labels, bias=False),))


def _qwen3_language_model(checkpoint: Checkpoint, num_labels: int) -> _Layout:
    return _Layout("last", answers=_read_answer_tokens(checkpoint))


_LAYOUTS: dict[str, Callable[[Checkpoint, int], _Layout]] = {
    "BertForSequenceClassification": _bert,
    "XLMRobertaForSequenceClassification": _roberta,
    "RobertaForSequenceClassification": _roberta,
    "MPNetForSequenceClassification": _roberta,
    "ModernBertForSequenceClassification": _modernbert,
    "Qwen3ForSequenceClassification": _qwen3,
    "Qwen3ForCausalLM": _qwen3_language_model,
}


def _is_language_model(checkpoint: Checkpoint) -> bool:
    return _LAYOUTS[checkpoint.architecture] is _qwen3_language_model


def _size(checkpoint: Checkpoint) -> int:
    size = checkpoint.model.get("hidden_size")
    if not isinstance(size, int):
        raise ConfigError("config.json: hidden_size is missing")
    return size


def _read_answer_tokens(checkpoint: Checkpoint) -> AnswerTokens:
    """Those of a `LogitScore` module, else the tokens `yes` and `no`, as Qwen3-Reranker is trained."""
    if not has_module(checkpoint, "LogitScore"):
        yes, no = _find_tokens(checkpoint, "yes", "no")
        return AnswerTokens(yes, no)
    folder = next(folder for kind, folder in checkpoint.modules if kind == "LogitScore")
    file = checkpoint.path / folder / "config.json"
    try:
        module = json.loads(file.read_text(encoding="utf-8"))
        return AnswerTokens(int(module["true_token_id"]), module.get("false_token_id"))
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{file}: no true_token_id, which a LogitScore needs") from None


def _find_tokens(checkpoint: Checkpoint, *tokens: str) -> list[int]:
    from tokenizers import Tokenizer  # only this kind of head needs it

    file = checkpoint.path / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain ones
        raise ConfigError(f"{file}: cannot be read ({error})") from None
    ids: list[int] = []
    for token in tokens:
        number = tokenizer.token_to_id(token)
        if number is None:
            raise ConfigError(f"{file}: no token {token!r}, so {checkpoint.architecture} cannot rerank")
        ids.append(number)
    return ids


def _read_score_activation(checkpoint: Checkpoint) -> str:
    """As the checkpoint says; else raw logits, but of a language model how probable `yes` is."""
    said = _read_said_activation(checkpoint)
    if said == SOFTMAX:
        raise ConfigError(f"{checkpoint.path}: the activation Softmax of a single score is not supported")
    return said or (SIGMOID if _is_language_model(checkpoint) else IDENTITY)


def _read_label_activation(checkpoint: Checkpoint, labels: tuple[str, ...]) -> str:
    """What makes probabilities, as the text-classification pipeline of `transformers` has it."""
    kind = checkpoint.model.get("problem_type")
    if kind == "regression":
        return IDENTITY
    if kind == "multi_label_classification" or _read_said_activation(checkpoint) == SIGMOID:
        return SIGMOID
    return SOFTMAX


def _read_said_activation(checkpoint: Checkpoint) -> str | None:
    """What sentence-transformers wrote down, in any of three places; None if nothing."""
    path = checkpoint.sentence_transformers.get("activation_fn")
    path = path or (checkpoint.model.get("sentence_transformers") or {}).get("activation_fn")
    path = path or checkpoint.model.get("sbert_ce_default_activation_function")
    if path is None:
        return None
    prefix, _, name = str(path).rpartition(".")
    if not prefix.startswith("torch.") or name not in _TORCH_NAMES:
        supported = ", ".join(_TORCH_NAMES)
        raise ConfigError(
            f"{checkpoint.path}: the activation {path!r} is not supported; those of torch are: {supported}"
        )
    return _TORCH_NAMES[name]
