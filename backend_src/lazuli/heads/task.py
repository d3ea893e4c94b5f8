"""What a checkpoint can be served for.

Takes a checkpoint, returns the name of a task. Knows nothing of weights or torch.
"""

from lazuli.checkpoint import Checkpoint
from lazuli.config import TASKS
from lazuli.errors import ConfigError

EMBED, RERANK, CLASSIFY, CONTEXT = TASKS
# Endings of architectures that bring a head of their own.
_CLASSIFIER = "ForSequenceClassification"
_LANGUAGE_MODEL = "ForCausalLM"


def detect_task(checkpoint: Checkpoint) -> str:
    """The task that a checkpoint is for: `embed`, `rerank` or `classify`.

    A classifier of one label gives scores, one of several gives labels. The heads of language models tell nothing, so
    there the modules decide, or what sentence-transformers wrote; where neither is there, a name with `reranker`.
    """
    if checkpoint.architecture.endswith(_CLASSIFIER):
        return RERANK if count_labels(checkpoint) == 1 else CLASSIFY
    if checkpoint.architecture.endswith(_LANGUAGE_MODEL) and _looks_like_a_reranker(checkpoint):
        return RERANK
    return EMBED


def check_task(checkpoint: Checkpoint, task: str) -> None:
    """Check that a checkpoint can be served for a task.

    Raises:
        ConfigError: If it has not what the task needs, or has what is for another one.
    """
    name = checkpoint.architecture
    is_classifier = name.endswith(_CLASSIFIER)
    if task in (EMBED, CONTEXT):
        if is_classifier or has_module(checkpoint, "LogitScore"):
            raise ConfigError(
                f"{checkpoint.path}: {name} is made for the task {detect_task(checkpoint)}, and its vectors mean "
                f"nothing; task {task} needs an embedding model"
            )
    elif task == CLASSIFY and not is_classifier:
        raise ConfigError(f"{checkpoint.path}: {name} has no labels; task classify needs a *{_CLASSIFIER}")
    elif task == RERANK and is_classifier and count_labels(checkpoint) != 1:
        raise ConfigError(
            f"{checkpoint.path}: {name} has {count_labels(checkpoint)} labels; task rerank needs one, task classify "
            "takes several"
        )


def scores_by_vectors(checkpoint: Checkpoint) -> bool:
    """Whether task `rerank` compares what the model makes of the query and of the document, each read by itself.

    So do embedding models, whatever kind of vectors they have; others read the two together.
    """
    if checkpoint.architecture.endswith(_LANGUAGE_MODEL):
        return bool(checkpoint.modules) and not _looks_like_a_reranker(checkpoint)
    return not checkpoint.architecture.endswith(_CLASSIFIER)


def count_labels(checkpoint: Checkpoint) -> int:
    """The number of labels that a `config.json` means."""
    return len(read_labels(checkpoint))


def read_labels(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The names of the labels, in the order of the logits.

    Raises:
        ConfigError: If they are not numbered from 0 on.
    """
    names = checkpoint.model.get("id2label")
    if not names:
        # Written only where it is not what `transformers` assumes.
        return tuple(f"LABEL_{number}" for number in range(int(checkpoint.model.get("num_labels") or 2)))
    labels = [names.get(str(number)) if isinstance(names, dict) else None for number in range(len(names))]
    if not all(isinstance(label, str) for label in labels):
        raise ConfigError(f"{checkpoint.path / 'config.json'}: id2label must map the numbers from 0 on to names")
    return tuple(map(str, labels))


def has_module(checkpoint: Checkpoint, name: str) -> bool:
    """Whether `modules.json` has a module of this class."""
    return any(kind == name for kind, _ in checkpoint.modules)


def _looks_like_a_reranker(checkpoint: Checkpoint) -> bool:
    if checkpoint.sentence_transformers.get("model_type") == "CrossEncoder" or has_module(checkpoint, "LogitScore"):
        return True
    # The cache of the hub has the name two folders above the files.
    named = any("reranker" in part.lower() for part in checkpoint.path.parts[-3:])
    return named and not checkpoint.modules
