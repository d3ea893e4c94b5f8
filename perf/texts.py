"""Texts for benchmarks: seeded, of given token lengths, made of the words of a checkpoint's vocabulary.

Takes a tokenizer, returns strings. The words are random, which changes no speed; the lengths are what counts.
"""

from collections.abc import Sequence

import numpy as np
import tokenizers


def make_texts(tokenizer: tokenizers.Tokenizer, lengths: Sequence[int], seed: int = 0) -> list[str]:
    """One text per length, special tokens counted.

    Args:
        tokenizer: A WordPiece tokenizer, or any whose lower-case ASCII words are single tokens.
        lengths: Tokens of each text.
        seed: Same seed, same texts.
    """
    rng = np.random.default_rng(seed)
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and word.islower())
    special = tokenizer.num_special_tokens_to_add(False)
    return [" ".join(rng.choice(words, size=length - special)) for length in lengths]
