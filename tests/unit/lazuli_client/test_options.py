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
        ({"truncate": "middle"}, "truncate: must be one of none, end, start, split, got 'middle'"),
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
        ({"truncate": "split", "overlap": -1}, "overlap: must be an integer from 0 on, got -1"),
        ({"truncate": "split", "overlap": True}, "overlap: must be an integer from 0 on, got True"),
        ({"truncate": "split", "overlap": 2**63}, "overlap: 9223372036854775808, but at most 2147483647 is possible"),
        ({"truncate": np.array(["end", "x"])}, "truncate: must be one of none, end, start, split, got array"),
        ({"truncate": "end", "overlap": 3}, 'overlap: only with truncate="split"'),
        ({"overlap": 3}, 'overlap: only with truncate="split"'),
        (
            {"output": "bfloat16"},
            "output: must be one of float32, dense, .*, multi, or a list of several, got 'bfloat16'",
        ),
        ({"output": ""}, "output: must be one of"),
        ({"output": []}, "output: must be one of"),
        ({"output": 8}, "output: must be one of .* got 8"),
        ({"output": [8]}, "output: must be one of"),
        ({"output": ["int8", "dense"]}, "output: int8 and dense: only one of them"),
        ({"force_dimensions": 1}, "force_dimensions: must be True or False, got 1"),
    ],
)
def test_bad_values_are_named(options, match):
    with pytest.raises(InvalidInputError, match=match):
        EmbedOptions(**options)


@pytest.mark.parametrize("value", [True, False])
def test_numpys_bool_is_a_bool(value):
    parameters = EmbedOptions(normalize=np.bool_(value)).parameters()
    assert parameters["normalize"] is value


def test_chunks_and_their_overlap():
    parameters = EmbedOptions(truncate="split", overlap=np.int32(0)).parameters()
    assert parameters == {"truncate": "split", "overlap": 0}
    assert type(parameters["overlap"]) is int


def test_the_largest_dimensions():
    assert EmbedOptions(dimensions=2**31 - 1).parameters() == {"dimensions": 2**31 - 1}


@pytest.mark.parametrize(
    ("output", "sent"),
    [("int8", "int8"), (["dense"], "dense"), (("dense", "sparse", "multi"), "dense,sparse,multi")],
)
def test_outputs_go_as_one_string(output, sent):
    assert EmbedOptions(output=output, force_dimensions=np.True_).parameters() == {
        "output": sent,
        "force_dimensions": True,
    }
