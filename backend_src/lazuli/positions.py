"""How many tokens a model can take, as its `config.json` says it."""

from collections.abc import Mapping
from typing import Any

_ROBERTA_TYPES = ("roberta", "xlm-roberta")


def read_max_positions(model: Mapping[str, Any]) -> int | None:
    """Most tokens that a model can take.

    Args:
        model: The content of `config.json`.

    Returns:
        What it says, or None if it does not.
    """
    # NomicBERT's first files have both; it has no table of positions, so what it was trained with is no limit.
    positions = model.get("n_positions", model.get("max_position_embeddings"))
    if not isinstance(positions, int):
        return None
    if model.get("rotary_scaling_factor") is not None:
        # Beyond those, all angles would depend on the length of the text.
        positions = min(positions, int(model.get("max_trained_positions", positions)))
    # RoBERTa and its kin number positions from the padding id on, and so lose as many. MPNet's is always 1.
    kind = model.get("model_type")
    padding = model.get("pad_token_id", 1) if kind in _ROBERTA_TYPES else 1 if kind == "mpnet" else -1
    return positions - int(padding) - 1
