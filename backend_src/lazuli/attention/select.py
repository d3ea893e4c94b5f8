"""Chooses the attention backend, and says so in the log.

Takes the name that the configuration asks for, or None. A backend asked for by name is never replaced by another.
"""

import logging

import torch

from lazuli.attention.base import AttentionBackend
from lazuli.attention.sdpa import SdpaAttention
from lazuli.attention.torch_varlen import TorchVarlenAttention
from lazuli.errors import ConfigError

_log = logging.getLogger(__name__)

# In the order of preference for `auto`.
BACKENDS: tuple[type[AttentionBackend], ...] = (TorchVarlenAttention, SdpaAttention)


def select_attention(name: str | None, device: torch.device, dtype: torch.dtype, head_dim: int) -> AttentionBackend:
    """Make the backend called `name`, or the first that can run here.

    Raises:
        ConfigError: If the name is unknown, or that backend cannot run here.
    """
    if name is None:
        chosen = next(backend for backend in BACKENDS if backend.why_not(device, dtype, head_dim) is None)
    else:
        by_name = {backend.name: backend for backend in BACKENDS}
        if name not in by_name:
            raise ConfigError(f"attention: {name!r} is not one of auto, {', '.join(by_name)}")
        chosen = by_name[name]
        reason = chosen.why_not(device, dtype, head_dim)
        if reason is not None:
            raise ConfigError(f"attention: {name!r} cannot be used on {device}: {reason}")
    _log.info("attention backend: %s (%s)", chosen.name, "asked for" if name else "chosen")
    return chosen()
