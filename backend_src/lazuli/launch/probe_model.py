"""What a probe sends to a model, made up from its configuration alone.

Takes configurations as the server gives them; returns inputs. Asks nobody.
"""

from dataclasses import dataclass
from typing import Any

_PROBE_TEXT = "Is anyone there?"
# Token 1 exists in every vocabulary, and a mask of ones has no holes.
_PROBE_LENGTH = 4
# Optional for models that read a single text, or do not tell segments apart; others need them.
_SEGMENTS = "token_type_ids"


@dataclass(frozen=True)
class ProbeModel:
    """What a probe needs to know of a model.

    Attributes:
        inputs: Name, datatype and shape of each input.
        decoupled: Whether it answers in a stream only.
        steps: The models of an ensemble.
    """

    name: str
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    decoupled: bool
    steps: tuple[str, ...] = ()


def probe_model(config: dict[str, Any], configs: dict[str, dict[str, Any]]) -> ProbeModel:
    """Read a model's configuration; an ensemble is decoupled if one of its steps is."""
    steps = step_names(config)
    batched = config.get("max_batch_size", 0) > 0
    inputs = tuple(
        (entry["name"], datatype(entry["data_type"]), probe_shape(entry, batched))
        for entry in config["input"]
        if not entry.get("optional", False) or entry["name"] == _SEGMENTS
    )
    decoupled = any(_is_decoupled(configs[name]) for name in (config["name"], *steps) if name in configs)
    return ProbeModel(config["name"], inputs, decoupled, steps)


def outer_models(models: list[ProbeModel]) -> list[ProbeModel]:
    """The models that are no step of another: probing these exercises all."""
    inner = {step for model in models for step in model.steps}
    return [model for model in models if model.name not in inner]


def datatype(config_type: str) -> str:
    """The protocol's name of a datatype, from the configuration's."""
    return "BYTES" if config_type == "TYPE_STRING" else config_type.removeprefix("TYPE_")


def probe_shape(entry: dict[str, Any], batched: bool) -> tuple[int, ...]:
    """A shape for one row, with something short in the place of free dimensions."""
    free = 1 if entry["data_type"] == "TYPE_STRING" else _PROBE_LENGTH
    dims = [free if int(dim) < 0 else int(dim) for dim in entry["dims"]]
    return (1, *dims) if batched else tuple(dims)


def probe_values(name: str, kind: str, count: int) -> list[str | int]:
    """What goes into an input: a pair has two segments, everything else is of one value."""
    if name == _SEGMENTS:
        return [int(2 * place >= count) for place in range(count)]
    return [_PROBE_TEXT if kind == "BYTES" else 1] * count


def step_names(config: dict[str, Any]) -> tuple[str, ...]:
    """The models of an ensemble; none if it is no ensemble."""
    return tuple(step["model_name"] for step in config.get("ensemble_scheduling", {}).get("step", ()))


def _is_decoupled(config: dict[str, Any]) -> bool:
    return bool(config.get("model_transaction_policy", {}).get("decoupled", False))
