"""Lengths of texts."""

import argparse

import numpy as np
import pytest

from texts.lengths import Lengths, exactly, parse_lengths


@pytest.mark.parametrize(("text", "expected", "label"), [("512", exactly(512), 512), ("8-64", Lengths(8, 64), "8-64")])
def test_a_number_or_a_range(text, expected, label):
    assert parse_lengths(text) == expected
    assert expected.label == label
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "0", "x", "8-", "-8", "64-8", "8-64-9", "8.5", "0-8"])
def test_other_words_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        parse_lengths(text)


def test_drawn_lengths_are_spread_over_the_range():
    drawn = Lengths(8, 512).draw(np.random.default_rng(0), 2000)
    assert min(drawn) == 8
    assert 500 < max(drawn) <= 512
    # Half of them below the geometric mean, 64.
    assert 0.45 < sum(length < 64 for length in drawn) / 2000 < 0.55


def test_one_length_is_always_that():
    assert exactly(16).draw(np.random.default_rng(0), 3) == [16, 16, 16]
