"""Which module reads which architecture."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from lazuli.attention.base import AttentionBackend, AttentionShape
from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.models import bert, gemma3, modernbert, mpnet, nomic_bert, qwen3, xlm_roberta
from lazuli.models.base import ModelShape, RaggedModel
from lazuli.weights import WeightReader


class _Config(Protocol):
    @property
    def shape(self) -> ModelShape: ...


@dataclass(frozen=True)
class _Family:
    """How one architecture is read: its `config.json`, the prefixes of its tensors, its model."""

    read_config: Callable[[Any], _Config]
    prefixes: tuple[str, ...]
    model: Callable[[Any, WeightReader, AttentionBackend], RaggedModel]


_BERT = _Family(bert.BertConfig.from_json, bert.PREFIXES, bert.BertModel)
_XLM_ROBERTA = _Family(xlm_roberta.read_config, xlm_roberta.PREFIXES, bert.BertModel)
_QWEN3_CAUSAL = _Family(partial(qwen3.Qwen3Config.from_json, causal=True), qwen3.PREFIXES, qwen3.Qwen3Model)
_QWEN3_BIDIRECTIONAL = _Family(partial(qwen3.Qwen3Config.from_json, causal=False), qwen3.PREFIXES, qwen3.Qwen3Model)
_MODERNBERT = _Family(modernbert.ModernBertConfig.from_json, modernbert.PREFIXES, modernbert.ModernBertModel)
_NOMIC_BERT = _Family(nomic_bert.NomicBertConfig.from_json, nomic_bert.PREFIXES, nomic_bert.NomicBertModel)
_GEMMA3 = _Family(gemma3.Gemma3Config.from_json, gemma3.PREFIXES, gemma3.Gemma3Model)
_MPNET = _Family(mpnet.read_config, mpnet.PREFIXES, mpnet.load)

_FAMILIES = {
    "BertModel": _BERT,
    "BertForMaskedLM": _BERT,
    "BertForSequenceClassification": _BERT,
    "XLMRobertaModel": _XLM_ROBERTA,
    "XLMRobertaForMaskedLM": _XLM_ROBERTA,
    "XLMRobertaForSequenceClassification": _XLM_ROBERTA,
    "RobertaModel": _XLM_ROBERTA,
    "RobertaForMaskedLM": _XLM_ROBERTA,
    "RobertaForSequenceClassification": _XLM_ROBERTA,
    "Qwen3Model": _QWEN3_CAUSAL,
    "Qwen3ForCausalLM": _QWEN3_CAUSAL,
    "Qwen3ForSequenceClassification": _QWEN3_CAUSAL,
    "PPLXQwen3Model": _QWEN3_BIDIRECTIONAL,
    "ModernBertModel": _MODERNBERT,
    "ModernBertForMaskedLM": _MODERNBERT,
    "ModernBertForSequenceClassification": _MODERNBERT,
    "NomicBertModel": _NOMIC_BERT,
    "NomicBertForMaskedLM": _NOMIC_BERT,
    "Gemma3TextModel": _GEMMA3,
    "MPNetModel": _MPNET,
    "MPNetForMaskedLM": _MPNET,
    "MPNetForSequenceClassification": _MPNET,
}


def read_shape(checkpoint: Checkpoint) -> ModelShape:
    """The sizes of a checkpoint's model, without its weights.

    Raises:
        ConfigError: If the architecture is not supported.
    """
    return _find_family(checkpoint).read_config(checkpoint.model).shape


def read_attention_shape(checkpoint: Checkpoint) -> AttentionShape:
    """The attention of a checkpoint's model, without its weights.

    Raises:
        ConfigError: If the architecture is not supported.
    """
    config: Any = _find_family(checkpoint).read_config(checkpoint.model)
    return AttentionShape(
        num_heads=config.num_attention_heads,
        num_kv_heads=getattr(config, "num_key_value_heads", config.num_attention_heads),
        head_dim=config.shape.head_dim,
        causal=getattr(config, "causal", False),
        num_layers=config.num_hidden_layers,
        window=getattr(config, "window", None),
        biased=getattr(config, "biased", False),
    )


def read_prefixes(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The prefixes that a checkpoint's tensors may have, for a `WeightReader`.

    Raises:
        ConfigError: If the architecture is not supported.
    """
    return _find_family(checkpoint).prefixes


def load_model(
    checkpoint: Checkpoint, attention: AttentionBackend, device: torch.device, dtype: torch.dtype
) -> RaggedModel:
    """Read a checkpoint's weights into the model that its `config.json` names.

    Raises:
        ConfigError: If the architecture is not supported, or its weights are not what they should be.
    """
    family = _find_family(checkpoint)
    weights = WeightReader(checkpoint.path, device, dtype, family.prefixes)
    return family.model(family.read_config(checkpoint.model), weights, attention)


def _find_family(checkpoint: Checkpoint) -> _Family:
    name = checkpoint.architecture
    if name not in _FAMILIES:
        supported = ", ".join(_FAMILIES)
        raise ConfigError(f"{checkpoint.path}: the architecture {name} is not supported; supported: {supported}")
    return _FAMILIES[name]
