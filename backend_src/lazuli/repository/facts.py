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
from lazuli.context.config import check_pooling
from lazuli.errors import ConfigError
from lazuli.heads.head_config import HeadConfig, read_head_config
from lazuli.heads.task import check_task, detect_task, scores_by_vectors
from lazuli.repository.errors import RepositoryError
from lazuli.repository.names import Task
from lazuli.repository.task_config import read_limit, reader_config
from lazuli.repository.weight_files import WeightFiles, read_weight_files
from lazuli.tokenwise.facts import DENSE, read_token_facts


@dataclass(frozen=True)
class Facts:
    """What a user wants to know before serving a checkpoint.

    Attributes:
        task: What the model computes.
        architecture: As its `config.json` names it.
        path: Its folder.
        weights: Its weights.
        dimension: The length of vectors, or the number of scores or labels.
        max_seq_length: Most tokens of a text, or of a pair.
        pooling: How tokens become a vector.
        pooling_is_guessed: Whether neither the checkpoint nor the user says so.
        normalize: Whether vectors are of unit length.
        prompts: Prompt name to the text put before the input.
        default_prompt_name: The prompt for requests that name none.
        labels: The names of labels, for that task.
        activation: What makes scores or probabilities of logits; empty for vectors.
        outputs: Of a model that embeds: `dense`, `sparse` and `multi`, of these what it has.
    """

    task: Task
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
    labels: tuple[str, ...] = ()
    activation: str = ""
    outputs: tuple[str, ...] = (DENSE,)


def examine(tokenizer: Mapping[str, str], engine: Mapping[str, str]) -> Facts:
    """Check that a model would start.

    Args:
        tokenizer: Parameters of the tokenizer.
        engine: Parameters of the engine.

    Raises:
        RepositoryError: If a file is missing, the architecture is not supported, or a parameter does not fit.
    """
    try:
        engine_config = EngineConfig.from_parameters(engine)
        task = Task(engine_config.task)
        config = reader_config(task, tokenizer)
        checkpoint = load_checkpoint(config.checkpoint)
        dimension = check_architecture(checkpoint, task)
        weights = read_weight_files(checkpoint.path)
        max_seq_length = read_limit(config)
        head = _read_head(checkpoint, task)
        outputs = read_token_facts(checkpoint).outputs if task is Task.EMBED else (DENSE,)
        if task is Task.CONTEXT:
            check_pooling(engine_config.pooling or checkpoint.pooling)
        _check_tensors(checkpoint, head)
    except ConfigError as error:
        raise RepositoryError(str(error)) from None
    prompts = config.parsed_prompts() if isinstance(config, TokenizerConfig) else {}
    chosen_prompt = config.default_prompt_name if isinstance(config, TokenizerConfig) else None
    return Facts(
        task=task,
        architecture=checkpoint.architecture,
        path=checkpoint.path,
        weights=weights,
        dimension=dimension,
        max_seq_length=max_seq_length,
        pooling=head.pooling if head else engine_config.pooling or checkpoint.pooling,
        pooling_is_guessed=not head and engine_config.pooling is None and not checkpoint.modules,
        normalize=checkpoint.normalize and not head,
        prompts={**checkpoint.prompts, **prompts},
        default_prompt_name=chosen_prompt or checkpoint.default_prompt_name,
        labels=head.labels if head and task is Task.CLASSIFY else (),
        activation=head.activation if head else "",
        outputs=outputs,
    )


def find_task(checkpoint: str) -> Task:
    """The task that a checkpoint is for, by its small files.

    Raises:
        RepositoryError: If they cannot be read.
    """
    try:
        return Task(detect_task(load_checkpoint(checkpoint)))
    except ConfigError as error:
        raise RepositoryError(str(error)) from None


def check_small_files(folder: Path, task: Task | None = None) -> None:
    """Check what can be checked without the weights.

    Args:
        folder: The checkpoint.
        task: What it is to do; None is what it is for.

    Raises:
        RepositoryError: As `examine` does.
    """
    task = task or find_task(str(folder))
    try:
        check_architecture(load_checkpoint(str(folder)), task)
        read_limit(reader_config(task, {"checkpoint": str(folder)}))
    except ConfigError as error:
        raise RepositoryError(str(error)) from None


def check_architecture(checkpoint: Checkpoint, task: Task = Task.EMBED) -> int:
    """The length of a checkpoint's vectors, or the number of its scores or labels.

    Raises:
        ConfigError: If the architecture is not supported, or not for this task.
        RepositoryError: If the engine is not installed.
    """
    _need_engine()
    from lazuli.dense import dense_dimension
    from lazuli.models.registry import read_shape

    shape = read_shape(checkpoint)
    check_task(checkpoint, task.value)
    head = _read_head(checkpoint, task)
    return len(head.labels) if head else dense_dimension(checkpoint, shape.hidden_size)


def _read_head(checkpoint: Checkpoint, task: Task) -> HeadConfig | None:
    has_head = task is Task.CLASSIFY or (task is Task.RERANK and not scores_by_vectors(checkpoint))
    return read_head_config(checkpoint, task.value) if has_head else None


def _check_tensors(checkpoint: Checkpoint, head: HeadConfig | None) -> None:
    """Build the model out of shapes, which tells of every tensor that is missing, left over or of a wrong size."""
    import torch

    from lazuli.dense import load_dense
    from lazuli.heads.load import load_head
    from lazuli.models.registry import load_model

    nowhere = torch.device("meta")
    model = load_model(checkpoint, cast(Any, None), nowhere, torch.float32)
    if head:
        load_head(checkpoint, head, nowhere)
    else:
        load_dense(checkpoint, model.shape.hidden_size, nowhere)


def _need_engine() -> None:
    try:
        import safetensors  # noqa: F401
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise RepositoryError(
            f"checking a checkpoint needs the package {error.name}", "pip install 'lazuli[engine]'"
        ) from None
