"""How checkpoints for late interaction (ColBERT) say that they are such: one vector a token, and none a text.

Takes what `modules.json` and `config_sentence_transformers.json` hold. sentence-transformers writes a module for it;
PyLate writes settings.
"""

from collections.abc import Iterable, Mapping
from typing import Any

# What PyLate writes, and nobody else.
PYLATE_MARKS = ("query_prefix", "document_prefix", "skiplist_words", "do_query_expansion")


def is_late_interaction(modules: Iterable[tuple[str, str]], settings: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is for late interaction.

    Args:
        modules: Class name and folder of each module.
        settings: Of sentence-transformers or PyLate.
    """
    named = settings.get("model_type") in ("ColBERT", "MultiVectorEncoder")
    marked = named or any(mark in settings for mark in PYLATE_MARKS)
    names = {name for name, _ in modules}
    return "Pooling" not in names and (marked or "MultiVectorMask" in names)


def add_prefixes(prompts: dict[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    """The prompts with what PyLate puts before queries and documents, which it keeps apart from them."""
    named = {kind: settings.get(f"{kind}_prefix") or "" for kind in ("query", "document")}
    merged = {kind: prefix + prompts.get(kind, "").removeprefix(prefix) for kind, prefix in named.items() if prefix}
    return prompts | merged
