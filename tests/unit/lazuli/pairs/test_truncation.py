import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from lazuli.pairs.truncation import longest_first, only_second


@pytest.fixture(scope="module")
def library():
    tokenizer = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


@pytest.mark.parametrize("room", [2, 3, 9, 16, 17])
def test_longest_first_is_what_the_library_does(library, room):
    library.enable_truncation(room, strategy="longest_first")
    for first in range(25):
        for second in range(25):
            ids = library.encode("a " * first, "b " * second).ids
            assert longest_first(first, second, room) == (ids.count(0), ids.count(1)), (first, second)


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (10, 20, (10, 20)),
        (10, 54, (10, 50)),
        (40, 60, (40, 20)),
        (48, 60, (48, 12)),
        (49, 60, (48, 12)),
        (49, 3, (48, 3)),
    ],
)
def test_only_second_leaves_a_query_of_three_quarters_of_the_limit_as_it_is(first, second, kept):
    assert only_second(64)(first, second, 60) == kept
