"""The `tokenizer.json` of a checkpoint, and what must be changed in it.

Takes a checkpoint folder, returns JSON. Two things are done to it. Pieces of a Unigram vocabulary that are special
tokens are renamed, as a text that spells one would become it, whatever the library is told about special tokens. And
for encoders that only read texts, everything that is put around a text is left out. Knows no tokenizer library.
"""

import json
from itertools import islice
from pathlib import Path
from typing import Any

from lazuli.errors import ConfigError

Definition = dict[str, Any]
# No text holds a space where pieces are matched: spaces have become ▁ by then.
_UNMATCHABLE = " \0"
_SEQUENCES = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}


def read_definition(folder: Path) -> Definition:
    """Read `tokenizer.json`.

    Raises:
        ConfigError: If it is missing or is no JSON object with a model.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"checkpoint: {path} is missing; only fast tokenizers are supported")
    try:
        definition = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"checkpoint: {path} is not valid JSON ({error})") from None
    if not isinstance(definition, dict) or not isinstance(definition.get("model"), dict):
        raise ConfigError(f"checkpoint: {path} describes no tokenizer")
    return definition


def model_type(definition: Definition) -> str:
    """`Unigram`, `BPE`, `WordPiece`, ...; old files may leave it out, which is answered with an empty string."""
    return str(definition["model"].get("type", ""))


def steps_of(definition: Definition, name: str) -> list[Definition]:
    """The `normalizer` or `pre_tokenizer` as a list: it may be missing, one step, or a sequence of several."""
    step = definition.get(name)
    return [] if step is None else list(step.get(_SEQUENCES[name], [step]))


def seal(definition: Definition) -> Definition:
    """A Unigram tokenizer none of whose special tokens a text can spell; any other is returned as it is.

    The ids stay, and so do the scores, since that of an unknown character is made from the least of them.
    """
    if model_type(definition) != "Unigram":
        return definition
    special = _special_tokens(definition)
    pieces = [
        [_UNMATCHABLE + piece if piece in special else piece, score] for piece, score in definition["model"]["vocab"]
    ]
    ordinary = [token for token in definition.get("added_tokens") or [] if not token["special"]]
    return definition | {"model": definition["model"] | {"vocab": pieces}, "added_tokens": ordinary}


def text_only(definition: Definition) -> Definition:
    """A sealed definition without special tokens, padding and truncation: it turns texts into ids, and that is all."""
    sealed = seal(definition)
    ordinary = [token for token in sealed.get("added_tokens") or [] if not token["special"]]
    return sealed | {"added_tokens": ordinary, "post_processor": None, "truncation": None, "padding": None}


def unknown_token(definition: Definition) -> str | None:
    """What stands for what the vocabulary lacks, by the name that it has in the definition."""
    model = definition["model"]
    if model_type(definition) == "Unigram":
        return None if model.get("unk_id") is None else str(model["vocab"][model["unk_id"]][0])
    token: str | None = model.get("unk_token")
    return token


def common_words(definition: Definition, most: int = 8192) -> list[str]:
    """Words that are one token each, as texts have them; the most common first, as vocabularies are ordered."""
    unigram = model_type(definition) == "Unigram"
    if model_type(definition) == "WordPiece":  # there, what goes on with a word is marked, not what begins it
        words = iter(vocabulary(definition))
    else:
        words = (token[1:] for token in vocabulary(definition) if token[:1] in ("▁", "Ġ"))
    # Byte-level BPE writes the bytes of other letters as letters too.
    plain = islice((word for word in words if word.isalnum() and (unigram or word.isascii())), most)
    # For Unigram what stands between spaces is a word, and so often ends with a mark.
    return [word + mark for word in plain for mark in (("", ",", ".") if unigram else ("",))]


def vocabulary(definition: Definition) -> list[str]:
    """All tokens, in the order of the file."""
    tokens = definition["model"].get("vocab", [])
    return [piece for piece, _ in tokens] if isinstance(tokens, list) else list(tokens)


def token_ids(definition: Definition) -> dict[str, int]:
    """Id of each token, also of those that were added."""
    tokens = definition["model"].get("vocab", [])
    ids = {piece: place for place, (piece, _) in enumerate(tokens)} if isinstance(tokens, list) else dict(tokens)
    return ids | {token["content"]: token["id"] for token in definition.get("added_tokens") or []}


def _special_tokens(definition: Definition) -> set[str]:
    return {token["content"] for token in definition.get("added_tokens") or [] if token["special"]}
