"""What a checkpoint is and whether it can be served, found before anything is written.

Takes the checkpoint and the parameters that its models will have; returns facts. Does what the models do at their
start, by the same functions, but reads no weights: tensors are on the device `meta`, which has shapes only.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.errors import ConfigError
from lazuli.heads.head_config import read_head_config
from lazuli.heads.task import check_task, detect_task, scores_by_vectors
from lazuli.repository.errors import RepositoryError
from lazuli.repository.names import Task
from lazuli.repository.task_config import check_reader, read_limit, reader_config
from lazuli.repository.weight_files import WeightFiles, read_weight_files
from lazuli.tokenwise.facts import DENSE, read_token_facts

if TYPE_CHECKING:
    from lazuli.engine_parts import EngineParts


@dataclass(frozen=True)
class Facts:
    """What a user wants to know before serving a checkpoint.

    Attributes:
        task: What the model computes.
        architecture: As its `config.json` names it.
        path: Its folder.
        weights: Its weights.
        dimension: The length of dense vectors, or the number of scores or labels; 0 if there are none of these.
        max_seq_length: Most tokens of a text, or of a pair.
        pooling: How tokens become a vector; empty if they do not.
        pooling_is_guessed: Whether neither the checkpoint nor the user says so.
        normalize: Whether vectors are of unit length.
        prompts: Prompt name to the text put before the input.
        default_prompt_name: The prompt for requests that name none.
        labels: The names of labels, for that task.
        activation: What makes scores or probabilities of logits; empty for vectors.
        outputs: `dense`, `sparse` and `multi`, of these what it gives, or what it compares texts by; empty with a head.
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
    with faults_told(tokenizer.get("checkpoint", "")):
        return _examine(tokenizer, EngineConfig.from_parameters(engine))


def _examine(tokenizer: Mapping[str, str], engine: EngineConfig) -> Facts:
    task = Task(engine.task)
    config = reader_config(task, tokenizer)
    checkpoint = load_checkpoint(config.checkpoint)
    check_architecture(checkpoint, task)
    weights = read_weight_files(checkpoint.path)
    check_reader(config, checkpoint)
    max_seq_length = read_limit(config)
    parts = _load_shapes(engine, checkpoint)
    head, outputs = parts.head, () if parts.head else parts.token_heads.facts.outputs
    is_dense = DENSE in outputs
    of_vectors = engine.pooling or checkpoint.pooling if is_dense else ""
    prompts = config.parsed_prompts() if isinstance(config, TokenizerConfig) else {}
    chosen_prompt = config.default_prompt_name if isinstance(config, TokenizerConfig) else None
    return Facts(
        task=task,
        architecture=checkpoint.architecture,
        path=checkpoint.path,
        weights=weights,
        dimension=parts.encoder.dimension if head or is_dense else 0,
        max_seq_length=max_seq_length,
        pooling=head.pooling if head else of_vectors,
        pooling_is_guessed=is_dense and engine.pooling is None and not checkpoint.modules,
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
    with faults_told(checkpoint):
        return Task(detect_task(load_checkpoint(checkpoint)))


def check_small_files(folder: Path, task: Task | None = None) -> None:
    """Check what can be checked without the weights.

    Args:
        folder: The checkpoint.
        task: What it is to do; None is what it is for.

    Raises:
        RepositoryError: As `examine` does.
    """
    task = task or find_task(str(folder))
    with faults_told(str(folder)):
        check_architecture(load_checkpoint(str(folder)), task)
        read_limit(reader_config(task, {"checkpoint": str(folder)}))


@contextmanager
def faults_told(checkpoint: str) -> Iterator[None]:
    """Turn whatever keeps a checkpoint from being read into a `RepositoryError`.

    Args:
        checkpoint: Its name, for the message.

    Raises:
        RepositoryError: If something was raised.
    """
    try:
        yield
    except RepositoryError:
        raise
    except ConfigError as error:
        raise RepositoryError(str(error)) from None
    except Exception as error:  # of a value that nobody expects: it would end the start of a server, too
        raise RepositoryError(f"checkpoint: {checkpoint} cannot be read as a model ({error!r:.200})") from error


def check_architecture(checkpoint: Checkpoint, task: Task = Task.EMBED) -> None:
    """Check what the small files of a checkpoint say of its model.

    Raises:
        ConfigError: If the architecture is not supported, or not for this task.
        RepositoryError: If the engine is not installed.
    """
    _need_engine()
    from lazuli.dense import dense_dimension
    from lazuli.models.registry import read_shape

    shape = read_shape(checkpoint)
    check_task(checkpoint, task.value)
    if task is Task.CLASSIFY or (task is Task.RERANK and not scores_by_vectors(checkpoint)):
        read_head_config(checkpoint, task.value)
    else:
        dense_dimension(checkpoint, shape.hidden_size)
        read_token_facts(checkpoint)


def _load_shapes(config: EngineConfig, checkpoint: Checkpoint) -> "EngineParts":
    """All parts of an engine, out of shapes: tells of every tensor that is missing, left over or of a wrong size."""
    import torch

    from lazuli.device import read_device
    from lazuli.engine_parts import load_parts

    if config.device is not None:
        read_device(config.device)
    return load_parts(config, checkpoint, torch.device("meta"))


def _need_engine() -> None:
    try:
        import safetensors  # noqa: F401
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise RepositoryError(
            f"checking a checkpoint needs the package {error.name}", "pip install 'lazuli[engine]'"
        ) from None
