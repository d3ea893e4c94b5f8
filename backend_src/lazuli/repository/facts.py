"""What a checkpoint is and whether it can be served, found before anything is written.

Takes the checkpoint and the parameters that its models will have; returns facts. Goes through all that the models do at
their start, but reads no weights: tensors are on the device `meta`, which has shapes only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.errors import ConfigError
from lazuli.repository.errors import RepositoryError
from lazuli.repository.weight_files import WeightFiles, read_weight_files


@dataclass(frozen=True)
class Facts:
    """What a user wants to know before serving a checkpoint.

    Attributes:
        architecture: As its `config.json` names it.
        path: Its folder.
        weights: Its weights.
        dimension: The length of vectors.
        max_seq_length: Most tokens of a text.
        pooling: How tokens become a vector.
        pooling_is_guessed: Whether neither the checkpoint nor the user says so.
        normalize: Whether vectors are of unit length.
        prompts: Prompt name to the text put before the input.
        default_prompt_name: The prompt for requests that name none.
    """

    architecture: str
    path: Path
    weights: WeightFiles
    dimension: int
    max_seq_length: int
    pooling: str
    pooling_is_guessed: bool
    normalize: bool
    prompts: Mapping[str, str]
    default_prompt_name: str | None


def examine(tokenizer: Mapping[str, str], engine: Mapping[str, str]) -> Facts:
    """Check that a model would start.

    Args:
        tokenizer: Parameters of the tokenizer.
        engine: Parameters of the engine.

    Raises:
        RepositoryError: If a file is missing, the architecture is not supported, or a parameter does not fit.
    """
    try:
        config, engine_config = TokenizerConfig.from_parameters(tokenizer), EngineConfig.from_parameters(engine)
        checkpoint = load_checkpoint(config.checkpoint)
        dimension = check_architecture(checkpoint)
        weights = read_weight_files(checkpoint.path)
        max_seq_length = _check_tokenizer(config)
        _check_tensors(checkpoint)
    except ConfigError as error:
        raise RepositoryError(str(error)) from None
    return Facts(
        architecture=_architecture(checkpoint),
        path=checkpoint.path,
        weights=weights,
        dimension=dimension,
        max_seq_length=max_seq_length,
        pooling=engine_config.pooling or checkpoint.pooling,
        pooling_is_guessed=engine_config.pooling is None and not (checkpoint.path / "modules.json").is_file(),
        normalize=checkpoint.normalize,
        prompts={**checkpoint.prompts, **config.parsed_prompts()},
        default_prompt_name=config.default_prompt_name or checkpoint.default_prompt_name,
    )


def check_small_files(folder: Path) -> None:
    """Check what can be checked without the weights.

    Raises:
        RepositoryError: As `examine` does.
    """
    try:
        check_architecture(load_checkpoint(str(folder)))
        _check_tokenizer(TokenizerConfig(checkpoint=str(folder)))
    except ConfigError as error:
        raise RepositoryError(str(error)) from None


def check_architecture(checkpoint: Checkpoint) -> int:
    """The length of a checkpoint's vectors.

    Raises:
        ConfigError: If the architecture is not supported.
        RepositoryError: If the engine is not installed.
    """
    _need_engine()
    from lazuli.dense import dense_dimension
    from lazuli.models.registry import read_shape

    return dense_dimension(checkpoint, read_shape(checkpoint).hidden_size)


def _check_tokenizer(config: TokenizerConfig) -> int:
    from lazuli.tokenizer import TextTokenizer

    try:
        return TextTokenizer.from_config(config).max_seq_length
    except ConfigError:
        raise
    except Exception as error:  # the library raises plain ones for a file that it cannot read
        raise ConfigError(f"checkpoint: the tokenizer of {config.checkpoint} cannot be read ({error})") from None


def _check_tensors(checkpoint: Checkpoint) -> None:
    """Build the model out of shapes, which tells of every tensor that is missing, left over or of a wrong size."""
    import torch

    from lazuli.dense import load_dense
    from lazuli.models.registry import load_model

    nowhere = torch.device("meta")
    model = load_model(checkpoint, cast(Any, None), nowhere, torch.float32)
    load_dense(checkpoint, model.shape.hidden_size, nowhere)


def _architecture(checkpoint: Checkpoint) -> str:
    return str((checkpoint.model.get("architectures") or ["none"])[0])


def _need_engine() -> None:
    try:
        import safetensors  # noqa: F401
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise RepositoryError(
            f"checking a checkpoint needs the package {error.name}", "pip install 'lazuli[engine]'"
        ) from None
