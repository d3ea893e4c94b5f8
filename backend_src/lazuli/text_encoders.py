"""Libraries that turn texts into token ids: Hugging Face's, which is the reference, and quicker ones equal to it.

Takes the definition of a tokenizer, returns an encoder, which gives the ids of texts and puts nothing around them.
None keeps anything of a text for the next one: what somebody else has sent must not show in how long a text takes.
`perf/README.md` has what was measured. Knows nothing of templates, limits and requests.
"""

import json
import logging
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tokenizers

from lazuli.encoder_check import first_difference
from lazuli.errors import ConfigError
from lazuli.many_texts import ManyTexts, measure
from lazuli.reference_encoder import HuggingFaceEncoder
from lazuli.text_cuts import word_boundary
from lazuli.tokenizer_definition import (
    Definition,
    common_words,
    model_type,
    steps_of,
    text_only,
    unknown_token,
    vocabulary,
)

# What is taken unless somebody names another one; Unigram is left to the reference, see `KitokenEncoder`.
_QUICKEST = {"WordPiece": "nanotoken", "BPE": "kitoken"}
# Marks newer than the one or the other library, with room for the next: what belongs to one character of a reader
# decides what SentencePiece's normalization does. Historic scripts and signs, so few texts are concerned.
_NEW_MARKS = re.compile(
    "[\u0897\u1acf-\u1aff\U00010d60-\U00010dff\U00010ec0-\U00011fff\U00016100-\U0001613f\U0001e5d0-\U0001e6ff]"
)
_TAB_APOSTROPHE = re.compile(r"[^\S ]'")
_log = logging.getLogger(__name__)


class TextEncoder(Protocol):
    """Texts to ids.

    Attributes:
        name: One of `config.TOKENIZER_BACKENDS`.
        chars_for_threads: The library has threads; fewer characters than this are encoded sooner than those wake up.
            None: it keeps the interpreter while it encodes, so that threads would only wait for each other: on 16
            cores, 16 of them took ten times as long as one.
        many: What reads many texts sooner, if there is something.
        boundary: Where threads may cut a long text to share it, if anywhere; see `text_cuts`.
    """

    name: str
    chars_for_threads: int | None
    many: ManyTexts | None
    boundary: re.Pattern[str] | None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens; may be called by several threads at once."""
        ...


class KitokenEncoder:
    """For byte-level BPE and, if asked for, for Unigram; where it is known to differ, the reference decides.

    That makes it equal for BPE. For Unigram there is left what can be cut in two ways that cost the same, such as
    "annnnn" or a long sequence of DNA: it may put the same pieces in another order.
    """

    name = "kitoken"
    chars_for_threads: int | None = None
    many: ManyTexts | None = None
    boundary: re.Pattern[str] | None = None

    def __init__(self, definition: Definition, reference: TextEncoder) -> None:
        """Load a tokenizer.

        Raises:
            ValueError: If it is of another kind.
            ImportError: If the package is not installed.
        """
        kind = model_type(definition)
        if not (_is_sentencepiece_unigram(definition) or _is_byte_level_bpe(definition)):
            raise ValueError(f"it is for SentencePiece's Unigram and byte-level BPE as Qwen's, not for this {kind}")
        from kitoken import Kitoken

        self._reference = reference
        self._in_doubt = _unigram_doubt(definition) if kind == "Unigram" else _bpe_doubt(definition)
        self._kitoken = Kitoken.from_tokenizers(json.dumps(_for_kitoken(definition)).encode())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `TextEncoder`."""
        rows: list[list[int]] = self._kitoken.encode_all(list(texts))
        doubtful = [row for row, ids in enumerate(rows) if self._in_doubt(texts[row], ids)]
        if doubtful:
            for row, ids in zip(doubtful, self._reference.encode([texts[row] for row in doubtful]), strict=True):
                rows[row] = ids
        return rows


class NanotokenEncoder:
    """For WordPiece."""

    name = "nanotoken"
    chars_for_threads: int | None = None
    many: ManyTexts | None = None
    boundary: re.Pattern[str] | None = None

    def __init__(self, definition: Definition) -> None:
        """Load a tokenizer.

        Raises:
            ValueError: If it is of another kind, or has a part that the library does not know.
            ImportError: If the package is not installed.
        """
        if model_type(definition) != "WordPiece":
            raise ValueError(f"it is for WordPiece, not for {model_type(definition)}")
        import nanotoken

        nanotoken.set_cache_entries(0)  # which leaves one, the least
        self._tokenizer: Any = nanotoken.WordPieceTokenizer.from_json(json.dumps(text_only(definition)))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `TextEncoder`."""
        rows: list[list[int]] = self._tokenizer.encode_batch_list(texts, add_special_tokens=False, parallel=False)
        return rows


def choose_encoder(
    backend: str | None, definition: Definition, tokenizer: tokenizers.Tokenizer, threads: int = 1
) -> TextEncoder:
    """The encoder of that name, or for None the quickest that is equal to the reference.

    Args:
        backend: One of `config.TOKENIZER_BACKENDS`.
        definition: The tokenizer.
        tokenizer: The same tokenizer, as `load_reference` loads it.
        threads: That may share many texts, if nobody named an encoder.

    Raises:
        ConfigError: If the named backend cannot be used for it.
    """
    reference = HuggingFaceEncoder(tokenizer)
    name = backend or _QUICKEST.get(model_type(definition), reference.name)
    if name != reference.name:
        try:
            encoder = _load(name, definition, reference)
        except (ValueError, LookupError, ImportError) as error:
            if backend is not None:
                raise ConfigError(f"tokenizer_backend: {backend} cannot be used for this checkpoint: {error}") from None
            _log.info("tokenizer: not %s: %s", name, error)
        else:
            _log.info("tokenizer: %s", name)
            if backend is None:
                encoder.many = _reference_for_many(encoder, reference, definition, threads)
            return encoder
    _log.info("tokenizer: %s", reference.name)
    reference.boundary = word_boundary(definition)
    reference.remember(common_words(definition))
    return reference


def _load(name: str, definition: Definition, reference: TextEncoder) -> TextEncoder:
    encoder: TextEncoder
    encoder = NanotokenEncoder(definition) if name == "nanotoken" else KitokenEncoder(definition, reference)
    if (text := first_difference(encoder.encode, reference.encode, vocabulary(definition))) is not None:
        raise ValueError(f"it differs from the reference on {text[:100]!r}")
    return encoder


def _reference_for_many(
    encoder: TextEncoder, reference: HuggingFaceEncoder, definition: Definition, threads: int
) -> ManyTexts | None:
    words = common_words(definition)
    reference.remember(words)
    many = measure(encoder.encode, reference.encode, words, threads)
    if many is not None:
        _log.info(
            "tokenizer: many texts by %s, on %d threads in %.2f of the time", reference.name, threads, many.together
        )
    return many


def _is_sentencepiece_unigram(definition: Definition) -> bool:
    """Whether SentencePiece's table normalizes, and not rules of Unicode, which each library has of another year."""
    normalizers = _kinds(definition, "normalizer")
    return model_type(definition) == "Unigram" and normalizers <= {"Precompiled", "Replace"}


def _is_byte_level_bpe(definition: Definition) -> bool:
    normalizers, pre_tokenizers = _kinds(definition, "normalizer"), _kinds(definition, "pre_tokenizer")
    return model_type(definition) == "BPE" and normalizers <= {"NFC"} and "ByteLevel" in pre_tokenizers


def _kinds(definition: Definition, name: str) -> set[str]:
    return {str(step["type"]) for step in steps_of(definition, name)}


def _for_kitoken(definition: Definition) -> Definition:
    """Without the NFC that `_bpe_doubt` stands for, and with the token for unknown characters, which it asks for."""
    result = text_only(definition)
    if model_type(definition) == "BPE":
        result |= {"normalizer": None}
    unknown = unknown_token(result)
    if unknown is not None:
        token = {"content": unknown, "id": _token_id(result, unknown), "special": True}
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        result["added_tokens"] = [*result["added_tokens"], token | flags]
    return result


def _token_id(definition: Definition, token: str) -> int:
    vocabulary = definition["model"]["vocab"]
    return int(definition["model"]["unk_id"] if isinstance(vocabulary, list) else vocabulary[token])


def _bpe_doubt(definition: Definition) -> Callable[[str, list[int]], bool]:
    """Texts that NFC would change, as the libraries are of different versions of Unicode; and contractions behind tabs.

    GPT-2's pattern, which ByteLevel has of its own, leaves `'s` whole behind white space that is no space; kitoken does
    not.
    """
    has_nfc = bool(steps_of(definition, "normalizer"))
    pre_tokenizers = steps_of(definition, "pre_tokenizer")
    has_pattern = any(step["type"] == "ByteLevel" and step.get("use_regex", True) for step in pre_tokenizers)

    def in_doubt(text: str, ids: list[int]) -> bool:
        if has_nfc and not (text.isascii() or unicodedata.is_normalized("NFC", text)):
            return True
        return has_pattern and "'" in text and _TAB_APOSTROPHE.search(text) is not None

    return in_doubt


def _unigram_doubt(definition: Definition) -> Callable[[str, list[int]], bool]:
    """Texts of new marks, and those of which only the space before the first word is left: the reference drops it."""
    space = [number for number, (piece, _) in enumerate(definition["model"]["vocab"]) if piece == "▁"]
    return lambda text, ids: ids == space or not (text.isascii() or _NEW_MARKS.search(text) is None)
