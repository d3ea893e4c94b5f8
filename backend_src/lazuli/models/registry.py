"""Which class reads which architecture."""

from collections.abc import Callable

import torch

from lazuli.attention.base import AttentionBackend
from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError
from lazuli.models import bert
from lazuli.models.base import ModelShape, RaggedModel
from lazuli.weights import WeightReader


def read_shape(checkpoint: Checkpoint) -> ModelShape:
    """The sizes of a checkpoint's model, without its weights.

    Raises:
        ConfigError: If the architecture is not supported.
    """
    _check_architecture(checkpoint)
    return bert.BertConfig.from_json(checkpoint.model).shape


def load_model(
    checkpoint: Checkpoint, attention: AttentionBackend, device: torch.device, dtype: torch.dtype
) -> RaggedModel:
    """Read a checkpoint's weights into the model that its `config.json` names.

    Raises:
        ConfigError: If the architecture is not supported, or its weights are not what they should be.
    """
    return _LOADERS[_check_architecture(checkpoint)](checkpoint, attention, device, dtype)


def _check_architecture(checkpoint: Checkpoint) -> str:
    names = checkpoint.model.get("architectures") or ["none"]
    if names[0] not in _LOADERS:
        supported = ", ".join(_LOADERS)
        raise ConfigError(f"{checkpoint.path}: the architecture {names[0]} is not supported; supported: {supported}")
    return str(names[0])


def _load_bert(
    checkpoint: Checkpoint, attention: AttentionBackend, device: torch.device, dtype: torch.dtype
) -> RaggedModel:
    weights = WeightReader(checkpoint.path, device, dtype, bert.PREFIXES)
    return bert.BertModel(bert.BertConfig.from_json(checkpoint.model), weights, attention)


_Loader = Callable[[Checkpoint, AttentionBackend, torch.device, torch.dtype], RaggedModel]
_LOADERS: dict[str, _Loader] = {"BertModel": _load_bert, "BertForMaskedLM": _load_bert}
