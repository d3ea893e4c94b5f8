"""What a checkpoint can be served for.

Takes a checkpoint, returns the name of a task. Knows nothing of weights or torch.
"""

from lazuli.checkpoint import Checkpoint
from lazuli.config import TASKS
from lazuli.errors import ConfigError
from lazuli.tokenwise.facts import DENSE, read_token_facts

EMBED, RERANK, CLASSIFY, CONTEXT = TASKS
# Endings of architectures that bring a head of their own.
_CLASSIFIER = "ForSequenceClassification"
_LANGUAGE_MODEL = "ForCausalLM"
# Where one label is a value of a single text, not a score of a pair.
_ONE_LABEL_PROBLEMS = ("regression", "multi_label_classification")


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
        if is_classifier or has_module(checkpoint, "LogitScore") or detect_task(checkpoint) != EMBED:
            raise ConfigError(
                f"{checkpoint.path}: {name} is made for the task {detect_task(checkpoint)}, and its vectors mean "
                f"nothing; task {task} needs an embedding model{_why_a_reranker(checkpoint)}"
            )
        if task == CONTEXT:
            check_dense(checkpoint, "task context")
    elif task == CLASSIFY:
        _check_labels(checkpoint, is_classifier=is_classifier)
    elif task == RERANK and is_classifier and count_labels(checkpoint) != 1:
        raise ConfigError(
            f"{checkpoint.path}: {name} has {count_labels(checkpoint)} labels; task rerank needs one, task classify "
            "takes several"
        )


def check_dense(checkpoint: Checkpoint, purpose: str) -> None:
    """Check that a checkpoint for the task `embed` has one vector a text.

    Args:
        checkpoint: The checkpoint.
        purpose: What needs it, for the message.

    Raises:
        ConfigError: If it gives something else.
    """
    outputs = read_token_facts(checkpoint).outputs
    if DENSE not in outputs:
        raise ConfigError(
            f"{checkpoint.path}: {checkpoint.architecture} has the output {', '.join(outputs)} and no dense vectors, "
            f"which {purpose} needs; it can be served for the tasks {EMBED} and {RERANK}"
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


def _check_labels(checkpoint: Checkpoint, *, is_classifier: bool) -> None:
    name = checkpoint.architecture
    if not is_classifier:
        raise ConfigError(f"{checkpoint.path}: {name} has no labels; task classify needs a *{_CLASSIFIER}")
    # One label is the best of every text. Where it is a measure of texts, as in a regression, its value still tells.
    if count_labels(checkpoint) == 1 and checkpoint.model.get("problem_type") not in _ONE_LABEL_PROBLEMS:
        raise ConfigError(
            f"{checkpoint.path}: {name} has one label, which every text would get; task rerank takes it; for task "
            f"classify, problem_type in its config.json must be {' or '.join(_ONE_LABEL_PROBLEMS)}"
        )


def _says_reranker(checkpoint: Checkpoint) -> bool:
    said = checkpoint.sentence_transformers.get("model_type") == "CrossEncoder"
    return said or has_module(checkpoint, "LogitScore")


def _why_a_reranker(checkpoint: Checkpoint) -> str:
    """A remedy, where nothing but a name speaks for it."""
    if checkpoint.architecture.endswith(_CLASSIFIER) or _says_reranker(checkpoint):
        return ""
    return " (the name of its folder says so: rename that if it is wrong)"


def _looks_like_a_reranker(checkpoint: Checkpoint) -> bool:
    if _says_reranker(checkpoint):
        return True
    # The cache of the hub has the name two folders above the files.
    named = any("reranker" in part.lower() for part in checkpoint.path.parts[-3:])
    return named and not checkpoint.modules
