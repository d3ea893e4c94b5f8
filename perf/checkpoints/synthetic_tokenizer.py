"""A real, fast tokenizer for a checkpoint of random weights, which has none.

    .venv/bin/python perf/checkpoints/synthetic_tokenizer.py /tmp/qwen3

Takes a checkpoint folder; writes `tokenizer.json`. The kind is the model's own, so that tokenising costs what it costs
there: byte-level BPE behind Qwen's pattern, or Unigram behind spaces and a metaspace for XLM-RoBERTa, of made-up words.
"""

import itertools
import json
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

# Three kinds of syllables, so that a word of one of each has a single way to be merged.
_SYLLABLES = [
    ["".join(pair) for pair in itertools.product(letters, "aeiou")] for letters in ("bcdfghj", "klmnpqr", "stvwxyz")
]
_QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_END = "<|endoftext|>"


def ensure_tokenizer(folder: Path) -> Path:
    """Write `tokenizer.json` unless there is one; returns its path."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        make = _unigram if config.get("model_type") == "xlm-roberta" else _byte_level_bpe
        make(config["vocab_size"]).save(str(path))
    return path


def _byte_level_bpe(vocab_size: int) -> Tokenizer:
    """As Qwen's: a text ends with one special token."""
    first, second, third = _SYLLABLES
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(syllable[0], syllable[1]) for syllable in first + second + third]
    starts = ["".join(pair) for pair in itertools.product(first, second)]
    merges += [(start[:2], start[2:]) for start in starts]
    # Room for each word twice: at the start of a text, and after a space, which byte-level BPE writes as Ġ.
    room = (vocab_size - len(alphabet) - len(merges) - 1) // 2
    words = list(itertools.islice(itertools.product(starts, third), max(room, 0)))
    merges += words + [("Ġ", start + end) for start, end in words]
    tokens = [*alphabet, *("".join(pair) for pair in merges), _END]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(tokens) > vocab_size:
        raise ValueError(f"a vocabulary of {vocab_size} is too small for a tokenizer of {len(tokens)}")
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([_END])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {_END}", special_tokens=[(_END, vocabulary[_END])]
    )
    return tokenizer


def _unigram(vocab_size: int) -> Tokenizer:
    """As XLM-RoBERTa's: a text stands between <s> and </s>."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    # Letters cost more than any word, so that the cheapest way to write a word is the word.
    pieces = [(piece, 0.0) for piece in special] + [(letter, -20.0) for letter in "▁abcdefghijklmnopqrstuvwxyz"]
    words = map("".join, itertools.chain(itertools.product(*_SYLLABLES), itertools.product(*_SYLLABLES, _SYLLABLES[0])))
    room = vocab_size - len(pieces)
    pieces += [(f"▁{word}", -12.0) for word in itertools.islice(words, room)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


if __name__ == "__main__":
    print(ensure_tokenizer(Path(sys.argv[1])))
