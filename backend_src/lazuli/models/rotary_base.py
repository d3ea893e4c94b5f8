"""The base of rotary angles, as `config.json` gives it in its newer and its older form.

Takes the file's content, returns a number. What stretches the angles for longer texts is refused.
"""

from collections.abc import Mapping
from typing import Any

from lazuli.errors import ConfigError

GLOBAL, LOCAL = "full_attention", "sliding_attention"


def read_theta(model: Mapping[str, Any], kind: str | None = None, old_name: str = "rope_theta") -> float:
    """Read the base.

    Args:
        model: The content of `config.json`.
        kind: `GLOBAL` or `LOCAL`, where each kind of layers has its own; older files call it `old_name`.
        old_name: Where it is if there are no `rope_parameters`.

    Raises:
        ConfigError: If it is missing, or the angles are scaled.
    """
    field = "rope_parameters" if model.get("rope_parameters") else "rope_scaling"
    parameters = model.get(field) or {}
    if kind is not None and (GLOBAL in parameters or LOCAL in parameters):
        parameters = parameters.get(kind) or {}
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if rope_type != "default":
        raise ConfigError(f"{field}: rope_type: {rope_type!r} is not supported, only 'default' is")
    part = parameters.get("partial_rotary_factor", model.get("partial_rotary_factor")) or 1.0
    if part != 1.0:
        raise ConfigError(f"partial_rotary_factor: {part!r} is not supported, only 1.0 is")
    theta = parameters.get("rope_theta", model.get(old_name))
    if theta is None:
        raise ConfigError(f"config.json: {old_name} is missing")
    return float(theta)
