"""Chooses the attention backend, and says so in the log.

Takes the name that the configuration asks for, or None. A backend asked for by name is never replaced by another.
"""

import logging
import math
from collections.abc import Collection, Iterable, Mapping

import torch

from lazuli.attention.auto import AutoAttention
from lazuli.attention.base import AttentionBackend, AttentionShape
from lazuli.attention.flash_attn_cute import FlashAttnCuteAttention
from lazuli.attention.flashinfer_ragged import FlashInferFa2Attention, FlashInferFa3Attention
from lazuli.attention.sdpa import SdpaAttention
from lazuli.attention.table import Entry, entries_for, read_entries, within
from lazuli.attention.torch_varlen import TorchVarlenAttention
from lazuli.attention.triton_ragged import TritonAttention
from lazuli.errors import ConfigError

_log = logging.getLogger(__name__)

# What gains less of a batch's attention is not worth the seconds that its package takes to load.
_LEAST_GAIN = 0.05
# In the order of preference where nothing was measured. None of these modules imports its package or compiler before
# its backend is made.
BACKENDS: tuple[type[AttentionBackend], ...] = (
    TritonAttention,
    TorchVarlenAttention,
    FlashInferFa3Attention,
    FlashAttnCuteAttention,
    FlashInferFa2Attention,
    SdpaAttention,
)


def select_attention(
    name: str | None,
    device: torch.device,
    dtype: torch.dtype,
    shape: AttentionShape,
    longest: int | None = None,
) -> AttentionBackend:
    """Make the backend called `name`, or by default one that takes the quickest for each batch.

    Args:
        name: One of `BACKENDS`, or None.
        device: Where it runs.
        dtype: Of queries, keys and values.
        shape: Of the model's attention.
        longest: Most tokens of a text: what would be quicker only for longer ones is not loaded, as some packages take
            seconds for that.

    Raises:
        ConfigError: If the name is unknown, or that backend cannot run here.
    """
    if name is not None:
        chosen = _by_name(name, device, dtype, shape)
        _log.info("attention backend: %s (asked for)", chosen.name)
        return chosen
    why_not = {backend.name: _why_not(backend, device, dtype, shape) for backend in BACKENDS}
    usable = [backend for backend in BACKENDS if why_not[backend.name] is None]
    measured = entries_for(shape, _read_entries(device))
    measured = within(measured, longest) if longest is not None else measured
    chosen = _make_auto(usable, measured, device, dtype, shape) or usable[0].make(shape, device, dtype)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in why_not.items() if reason is not None)
    _log.info("attention backend: %s (chosen)%s", chosen.name, f"; cannot be used: {reasons}" if reasons else "")
    if isinstance(chosen, AutoAttention):
        _log.info("attention by measured times: %s", chosen.describe())
    return chosen


def check_attention(name: str, shape: AttentionShape) -> None:
    """Check what a name says without a machine to run on.

    Raises:
        ConfigError: If it is unknown, or that backend does not have this kind of attention.
    """
    reason = _find(name).why_not_shape(shape)
    if reason is not None:
        raise ConfigError(f"attention: {name!r} cannot be used: {reason}")


def _find(name: str) -> type[AttentionBackend]:
    by_name = {backend.name: backend for backend in BACKENDS}
    if name not in by_name:
        raise ConfigError(f"attention: {name!r} is not one of auto, {', '.join(by_name)}")
    return by_name[name]


def _by_name(name: str, device: torch.device, dtype: torch.dtype, shape: AttentionShape) -> AttentionBackend:
    backend = _find(name)
    reason = _why_not(backend, device, dtype, shape)
    if reason is not None:
        raise ConfigError(f"attention: {name!r} cannot be used on {device}: {reason}")
    try:
        return backend.make(shape, device, dtype)
    except Exception as error:
        raise ConfigError(f"attention: {name!r} failed to start on {device}: {error}") from error


def _why_not(
    backend: type[AttentionBackend], device: torch.device, dtype: torch.dtype, shape: AttentionShape
) -> str | None:
    return backend.why_not(device, dtype, shape.head_dim) or backend.why_not_shape(shape)


def _read_entries(device: torch.device) -> list[Entry]:
    if device.type != "cuda" or not torch.cuda.is_available():
        return []
    return read_entries(torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))


def _make_auto(
    usable: Iterable[type[AttentionBackend]],
    measured: list[Entry],
    device: torch.device,
    dtype: torch.dtype,
    shape: AttentionShape,
) -> AttentionBackend | None:
    """Make those backends that are the quickest of the usable ones somewhere; None if nothing was measured."""
    able = {backend.name: backend for backend in usable if backend.capturable}
    made: dict[str, AttentionBackend] = {}
    while True:
        candidates = _worth_loading(able, measured, shape.num_layers)
        entries = [entry for entry in measured if entry.quickest(candidates, shape.num_layers)]
        chosen = {entry.quickest(candidates, shape.num_layers) for entry in entries}
        missing = [name for name in candidates if name in chosen and name not in made]
        if not missing:
            break
        name = missing[0]
        backend = _make_quickly(candidates[name], device, dtype, shape)
        if backend is None:
            del able[name]
        else:
            made[name] = backend
    backends = {name: made[name] for name in candidates if name in chosen}
    return AutoAttention(backends, entries, shape.num_layers) if backends else None


def _worth_loading(
    able: Mapping[str, type[AttentionBackend]], measured: list[Entry], num_layers: int
) -> dict[str, type[AttentionBackend]]:
    """All but those that load slowly and without which no batch's attention takes much longer."""
    kept = dict(able)
    while slow := [name for name, backend in kept.items() if backend.loads_slowly]:
        losses = {name: _loss_without(name, kept, measured, num_layers) for name in slow}
        least = min(slow, key=lambda name: losses[name])
        if losses[least] > _LEAST_GAIN:
            break
        del kept[least]
    return kept


def _loss_without(name: str, among: Collection[str], measured: list[Entry], num_layers: int) -> float:
    """By how much a batch's attention takes longer at most if a backend is not there; infinite if no other is."""
    others = [other for other in among if other != name]
    losses = [0.0]
    for entry in measured:
        best, next_best = entry.quickest(among, num_layers), entry.quickest(others, num_layers)
        if best == name:
            times = entry.batch_us(best, num_layers), next_best and entry.batch_us(next_best, num_layers)
            losses.append(times[1] / times[0] - 1.0 if times[1] else math.inf)
    return max(losses)


def _make_quickly(
    backend: type[AttentionBackend], device: torch.device, dtype: torch.dtype, shape: AttentionShape
) -> AttentionBackend | None:
    """Make a backend that nobody asked for; None, said in the log, if that fails or would take minutes."""
    try:
        reason = backend.why_slow_to_make(shape, dtype)
        if reason is None:
            return backend.make(shape, device, dtype)
    except Exception:
        _log.exception("attention backend %s failed to start; the choice is among the others", backend.name)
    else:
        _log.warning("attention backend %s would be quicker for some batches, but %s", backend.name, reason)
    return None
