import re
from itertools import pairwise

import pytest

from lazuli.text_cuts import cut, in_groups, word_boundary

METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BY_WORDS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]}


def definition(**changes):
    result = {
        "model": {"type": "Unigram", "vocab": [["a", 0.0]]},
        "pre_tokenizer": BY_WORDS,
        "normalizer": {"type": "Precompiled"},
        "added_tokens": [{"content": "<mask> x", "special": True}],
    }
    return result | changes


BOUNDARY = word_boundary(definition())


class TestWhichTokenizers:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"pre_tokenizer": METASPACE},
            {"normalizer": {"type": "NFKC"}},
            {"pre_tokenizer": {"type": "Metaspace", "add_prefix_space": True}},
            {"normalizer": None, "added_tokens": None},
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [
                        {"type": "Precompiled"},
                        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
                    ],
                }
            },
        ],
    )
    def test_those_that_read_words_by_themselves(self, changes):
        assert word_boundary(definition(**changes)) is not None

    @pytest.mark.parametrize(
        "changes",
        [
            {"model": {"type": "BPE", "vocab": {}}},
            {"pre_tokenizer": None},
            {"pre_tokenizer": METASPACE | {"prepend_scheme": "first"}},
            {"pre_tokenizer": METASPACE | {"split": False}},
            {"pre_tokenizer": {"type": "ByteLevel"}},
            {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}},
            {"normalizer": {"type": "Prepend", "prepend": "▁"}},
            {"added_tokens": [{"content": "gem", "special": False}]},
        ],
    )
    def test_no_other(self, changes):
        assert word_boundary(definition(**changes)) is None


class TestCut:
    def test_a_text_without_a_place_for_it_is_whole(self):
        for text in ("", "short", "x" * 100, "人 " * 50, "a  b\tc\nd. " * 9, "a. b, c! " * 20, "e \u0301" * 40):
            assert list(cut(text, 4, BOUNDARY)) == [text]
        assert list(cut("one two three four", 4, None)) == ["one two three four"]

    def test_parts_have_the_size_or_more_and_lack_one_space_each(self):
        text = "one two three four five"
        assert list(cut(text, 4, BOUNDARY)) == ["one two", "three", "four five"]

    @pytest.mark.parametrize("size", [1, 3, 10, 30])
    def test_nothing_else_is_lost(self, size):
        text = "It was, in May and June; naïve café Привет мир 안녕 세계  x.y a\tb c d e f g h i j k"
        parts = list(cut(text, size, BOUNDARY))
        assert len(parts) > 1
        assert " ".join(parts) == text
        assert all(len(part) >= size for part in parts[:-1])
        assert all(re.search(r"\w$", part) and re.match(r"\w", after) for part, after in pairwise(parts))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], []),
        (["abc"], [["abc"]]),
        (["a", "bb", "ccc", "dddd", "", "e"], [["a", "bb", "ccc"], ["dddd", "", "e"]]),
        (["aaaaaaaaa", "b"], [["aaaaaaaaa"], ["b"]]),
    ],
)
def test_groups_of_five_characters_or_more(items, expected):
    assert list(in_groups(items, 5, len)) == expected
