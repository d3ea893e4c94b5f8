"""How long the texts of a load are: all of one length, or spread over a range.

Takes a word of the command line; draws numbers of tokens. Knows nothing of texts.
"""

import argparse
import re
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Lengths:
    """Tokens of a text, special tokens included; a range is spread evenly on a logarithmic scale, as real texts are."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.label)

    @property
    def label(self) -> int | str:
        """As a result file has it."""
        return self.low if self.low == self.high else f"{self.low}-{self.high}"

    def draw(self, rng: np.random.Generator, count: int) -> list[int]:
        """`count` lengths."""
        drawn = np.exp(rng.uniform(np.log(self.low), np.log(self.high), size=count))
        return [int(length) for length in drawn.round()]


def exactly(length: int) -> Lengths:
    """All of one length."""
    return Lengths(length, length)


def parse_lengths(text: str) -> Lengths:
    """`512`, or `8-512`, for arguments of commands."""
    found = re.fullmatch(r"([1-9]\d*)(?:-([1-9]\d*))?", text)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if low > high:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens such as 512 or a range such as 8-512")
    return Lengths(low, high)
