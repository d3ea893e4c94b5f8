import numpy as np
import pytest

from lazuli_client import EmbedOptions, InvalidInputError


def test_none_is_not_sent():
    assert EmbedOptions().parameters() == {}


def test_given_options_are_sent_false_and_empty_ones_too():
    assert EmbedOptions(input_type="query").parameters() == {"input_type": "query"}
    options = EmbedOptions(instruction="", truncate="start", dimensions=np.int64(8), normalize=False)
    assert options.parameters() == {
        "instruction": "",
        "truncate": "start",
        "dimensions": 8,
        "normalize": False,
    }
    assert type(options.parameters()["dimensions"]) is int


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"prompt_name": "a", "instruction": "b"}, "only one of them"),
        ({"prompt_name": "a", "input_type": "query"}, "prompt_name and input_type: only one of them"),
        ({"input_type": "passage"}, "input_type: must be one of query, document, got 'passage'"),
        ({"truncate": "middle"}, "truncate: must be one of none, end, start, got 'middle'"),
        ({"truncate": True}, "truncate"),
        ({"dimensions": 0}, "dimensions: must be a positive integer, got 0"),
        ({"dimensions": -5}, "dimensions: must be a positive integer, got -5"),
        ({"dimensions": 2**31}, "dimensions: 2147483648, but at most 2147483647 is possible"),
        ({"dimensions": 2**70}, "dimensions: 1180591620717411303424, but at most"),
        ({"instruction": "find\0this"}, "instruction: NUL at character 4; the server would cut"),
        ({"prompt_name": "query\0"}, "prompt_name: NUL at character 5"),
        ({"instruction": "a\ud800"}, "instruction: not valid Unicode, lone surrogate at character 1"),
        ({"normalize": np.int64(1)}, "normalize: must be True or False"),
        ({"dimensions": True}, "dimensions"),
        ({"dimensions": 8.0}, "dimensions"),
        ({"normalize": 1}, "normalize: must be True or False, got 1"),
        ({"prompt_name": 3}, "prompt_name: must be a string, got 3"),
    ],
)
def test_bad_values_are_named(options, match):
    with pytest.raises(InvalidInputError, match=match):
        EmbedOptions(**options)


@pytest.mark.parametrize("value", [True, False])
def test_numpys_bool_is_a_bool(value):
    parameters = EmbedOptions(normalize=np.bool_(value)).parameters()
    assert parameters["normalize"] is value


def test_the_largest_dimensions():
    assert EmbedOptions(dimensions=2**31 - 1).parameters() == {"dimensions": 2**31 - 1}
