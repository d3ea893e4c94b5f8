"""To how many dimensions the vectors of a checkpoint may be cut.

Takes what a checkpoint says about itself, returns the numbers. Of a model that was not trained for it (Matryoshka
representation learning), the first dimensions say no more than others, and a cut vector is worse than it needs to be.

A checkpoint says yes by a list or a flag in `config.json`, by the loss that sentence-transformers writes into its
`README.md`, or by being one of three families whose cards say it and whose files show who they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lazuli.checkpoint import Checkpoint
from lazuli.errors import ConfigError, OptionError

_LISTS = ("matryoshka_dimensions", "matryoshka_dims")
_FLAG = "is_matryoshka"
_LOSS = "loss:MatryoshkaLoss"
# The prompt of Qwen3-Embedding; its config.json is that of any Qwen3.
_QWEN3_PROMPT = "Instruct: Given a web search query"


@dataclass(frozen=True)
class Matryoshka:
    """What may be cut.

    Attributes:
        allowed: Whether vectors may be cut at all.
        dimensions: To how many dimensions; empty if to any number.
    """

    allowed: bool
    dimensions: tuple[int, ...] = ()

    def check(self, dimensions: int) -> None:
        """Check a number that is less than the model has.

        Raises:
            OptionError: If vectors may not be cut to it.
        """
        remedy = "pass force_dimensions=true to cut them all the same"
        if not self.allowed:
            raise OptionError(
                f"dimensions: {dimensions}, but the model is not known to be trained for cut vectors (Matryoshka); "
                f"{remedy}"
            )
        if self.dimensions and dimensions not in self.dimensions:
            known = ", ".join(map(str, self.dimensions))
            raise OptionError(
                f"dimensions: {dimensions}, but the model's vectors are made to be cut to {known}; {remedy}"
            )


ANY_DIMENSIONS = Matryoshka(True)


def read_matryoshka(checkpoint: Checkpoint, setting: str | None = None) -> Matryoshka:
    """Find out.

    Args:
        checkpoint: The checkpoint.
        setting: `yes` or `no`, whatever it says; None asks the checkpoint.

    Raises:
        ConfigError: If the list in `config.json` is none of numbers.
    """
    if setting is not None:
        return Matryoshka(setting == "yes")
    model = checkpoint.model
    name = next((name for name in _LISTS if model.get(name)), None)
    if name is not None:
        return Matryoshka(True, _read_list(checkpoint, name))
    if isinstance(model.get(_FLAG), bool):
        return Matryoshka(model[_FLAG])
    return Matryoshka(_is_known(checkpoint, model) or _says_loss(checkpoint))


def _read_list(checkpoint: Checkpoint, name: str) -> tuple[int, ...]:
    values = checkpoint.model[name]
    if not isinstance(values, list) or not all(type(value) is int and value > 0 for value in values):
        raise ConfigError(f"{checkpoint.path / 'config.json'}: {name}: must be a list of numbers, got {values!r}")
    return tuple(sorted(values))


def _is_known(checkpoint: Checkpoint, model: Mapping[str, Any]) -> bool:
    architecture = checkpoint.architecture
    if checkpoint.has_quantizer:
        return True
    if architecture == "Gemma3TextModel":  # with the layers behind its pooling it is EmbeddingGemma
        return len(checkpoint.dense) == 2
    prompt = checkpoint.prompts.get("query", "")
    return model.get("model_type") == "qwen3" and checkpoint.pooling == "last" and prompt.startswith(_QWEN3_PROMPT)


def _says_loss(checkpoint: Checkpoint) -> bool:
    """Whether the tags at the top of the model card name the loss."""
    try:
        card = (checkpoint.path / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    head = card.split("\n---", 1)[0] if card.startswith("---") else ""
    return any(line.strip().removeprefix("- ").strip("\"'") == _LOSS for line in head.splitlines())
