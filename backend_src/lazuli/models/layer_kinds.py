"""Models that have two kinds of layers: those that see the whole sequence, and those that see a window of it.

Takes the content of `config.json`, returns what differs from layer to layer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lazuli.errors import ConfigError
from lazuli.layers.rotary import RotaryTable
from lazuli.models.rotary_base import GLOBAL, LOCAL, read_theta


@dataclass(frozen=True)
class LayerKind:
    """What differs.

    Attributes:
        window: How far a token sees to both sides; None for everything.
        theta: Base of the rotary angles.
    """

    window: int | None
    theta: float


def read_layer_kinds(
    model: Mapping[str, Any], window: int, is_global: Callable[[int], bool], old_thetas: Mapping[str, str]
) -> tuple[LayerKind, ...]:
    """The kind of each layer.

    Args:
        model: The content of `config.json`; has `num_hidden_layers`.
        window: Of local layers.
        is_global: The rule by a layer's number, for files without `layer_types`.
        old_thetas: Where older files have the bases, by `GLOBAL` and `LOCAL`.

    Raises:
        ConfigError: If a value is missing or not supported.
    """
    count = model["num_hidden_layers"]
    names = model.get("layer_types") or [GLOBAL if is_global(index) else LOCAL for index in range(count)]
    other = next((name for name in names if name not in (GLOBAL, LOCAL)), None)
    if other is not None:
        raise ConfigError(f"layer_types: {other!r} is not supported, only {GLOBAL!r} and {LOCAL!r} are")
    if len(names) != count:
        raise ConfigError(f"layer_types: {len(names)} entries, but num_hidden_layers is {count}")
    thetas = {name: read_theta(model, name, old_thetas[name]) for name in set(names)}
    return tuple(LayerKind(window if name == LOCAL else None, thetas[name]) for name in names)


def widest_window(kinds: Iterable[LayerKind]) -> int | None:
    """The window of the local layers, or None if there are none."""
    return max((kind.window for kind in kinds if kind.window is not None), default=None)


def make_tables(
    kinds: Iterable[LayerKind], head_dim: int, max_positions: int, device: torch.device
) -> dict[float, RotaryTable]:
    """One table of angles for each base."""
    return {theta: RotaryTable(head_dim, theta, max_positions, device) for theta in {kind.theta for kind in kinds}}
