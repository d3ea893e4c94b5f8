import json
import re

import pytest

from lazuli.errors import OptionError
from lazuli.options import RequestOptions
from lazuli.scoring.options import ClassifyOptions, RerankOptions


def parse(**values):
    return RequestOptions.from_json(json.dumps(values))


@pytest.mark.parametrize("text", ["", "{}"])
def test_nothing_gives_the_defaults(text):
    options = RequestOptions.from_json(text)
    assert options == RequestOptions(None, None, "none", None, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt_name", "query"),
        ("instruction", "Find it: "),
        ("instruction", ""),
        ("truncate", "none"),
        ("truncate", "end"),
        ("truncate", "start"),
        ("input_type", "query"),
        ("input_type", "document"),
        ("dimensions", 1),
        ("dimensions", 384),
        ("normalize", True),
        ("normalize", False),
    ],
)
def test_each_option(name, value):
    assert getattr(parse(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("text", "expected", "encoding"),
    [
        ("dense", ("float32",), "float32"),
        ("float32", ("float32",), "float32"),
        ("int8", ("int8",), "int8"),
        ("dense,sparse, multi", ("float32", "sparse", "multi"), "float32"),
        ("sparse,sparse", ("sparse",), None),
        ("sparse,binary", ("sparse", "binary"), "binary"),
    ],
)
def test_output(text, expected, encoding):
    options = parse(output=text)
    assert options.output == expected
    assert options.encoding == encoding


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "output: must be one of dense, float32, float16, int8, uint8, binary, ubinary, sparse, multi, or several"),
        ("int8,", 'with commas between, got "int8,"'),
        ("bfloat16", 'got "bfloat16"'),
        ("Int8", 'got "Int8"'),
        (8, "output: must be a string, got 8"),
        ("int8,binary", "output: int8 and binary: only one of them can be given"),
        ("dense,int8", "output: float32 and int8: only one"),
    ],
)
def test_bad_outputs(value, text):
    with pytest.raises(OptionError) as caught:
        parse(output=value)
    assert text in str(caught.value)


def test_when_it_is_computed():
    options = parse(workload="bulk", deadline_ms=250)
    assert (options.workload, options.deadline_ms) == ("bulk", 250)
    assert (parse().workload, parse().deadline_ms) == (None, None)


@pytest.mark.parametrize(
    ("deadline_ms", "timeout_ms", "expected"), [(None, None, None), (5, None, 5), (None, 7, 7), (5, 7, 5), (7, 5, 5)]
)
@pytest.mark.parametrize("kind", [RequestOptions, RerankOptions, ClassifyOptions])
def test_the_earlier_of_deadline_and_timeout_counts(kind, deadline_ms, timeout_ms, expected):
    options = kind(deadline_ms=deadline_ms, truncate="end").within(timeout_ms)
    assert options == kind(deadline_ms=expected, truncate="end")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("workload", "Query", 'workload: must be one of query, bulk, got "Query"'),
        ("workload", 1, "workload: must be one of query, bulk, got 1"),
        ("deadline_ms", 0, "deadline_ms: must be a positive integer, got 0"),
        ("deadline_ms", 2.5, "deadline_ms: must be a positive integer, got 2.5"),
        ("deadline_ms", True, "deadline_ms: must be a positive integer, got true"),
    ],
)
def test_bad_values_of_when_it_is_computed(name, value, text):
    with pytest.raises(OptionError, match=re.escape(text)):
        parse(**{name: value})


@pytest.mark.parametrize("name", ["prompt", "Truncate", "dimension", "", "x" * 300])
def test_an_unknown_name_is_named_with_the_known_ones(name):
    with pytest.raises(OptionError) as caught:
        parse(**{name: 1})
    known = (
        "deadline_ms, dimensions, force_dimensions, input_type, instruction, normalize, output, overlap, prompt_name, "
        "truncate, workload"
    )
    shown = repr(name) if len(name) < 80 else f"{name!r:.77}..."
    assert str(caught.value) == f"unknown parameter {shown}; known: {known}"


@pytest.mark.parametrize(
    "name", ["triton_enable_empty_final_response", "sequence_id", "binary_data_output", "ragged_x"]
)
def test_reserved_names_are_passed_over(name):
    assert parse(**{name: 1}) == RequestOptions()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("prompt_name", 1, "prompt_name: must be a string, got 1"),
        ("prompt_name", None, "prompt_name: must be a string, got null"),
        ("instruction", ["a"], 'instruction: must be a string, got ["a"]'),
        ("truncate", True, "truncate: must be one of none, end, start, split, got true"),
        ("truncate", "END", 'truncate: must be one of none, end, start, split, got "END"'),
        ("truncate", "", 'truncate: must be one of none, end, start, split, got ""'),
        ("truncate", ["end"], 'truncate: must be one of none, end, start, split, got ["end"]'),
        ("input_type", "passage", 'input_type: must be one of query, document, got "passage"'),
        ("input_type", 1, "input_type: must be one of query, document, got 1"),
        ("dimensions", 0, "dimensions: must be a positive integer, got 0"),
        ("dimensions", -3, "dimensions: must be a positive integer, got -3"),
        ("dimensions", True, "dimensions: must be a positive integer, got true"),
        ("dimensions", 8.0, "dimensions: must be a positive integer, got 8.0"),
        ("dimensions", "8", 'dimensions: must be a positive integer, got "8"'),
        ("normalize", 1, "normalize: must be true or false, got 1"),
        ("normalize", "true", 'normalize: must be true or false, got "true"'),
    ],
)
def test_a_bad_value_is_named_with_its_name(name, value, text):
    with pytest.raises(OptionError) as caught:
        parse(**{name: value})
    assert str(caught.value) == text


def test_a_long_bad_value_is_shortened():
    with pytest.raises(OptionError) as caught:
        parse(truncate="é" * 1000)
    assert len(str(caught.value)) < 140
    assert str(caught.value).endswith("é...")


def test_short_texts_are_parsed_once_and_long_ones_are_not_kept():
    assert parse(dimensions=77) is parse(dimensions=77)
    assert parse(instruction="i" * 2000) is not parse(instruction="i" * 2000)
    assert parse(instruction="i" * 2000) == RequestOptions(instruction="i" * 2000)


def test_a_refusal_is_not_kept():
    for _ in range(2):
        with pytest.raises(OptionError, match="dimensions: must be"):
            parse(dimensions=0)


@pytest.mark.parametrize(
    "names", [("prompt_name", "instruction"), ("prompt_name", "input_type"), ("instruction", "input_type")]
)
def test_what_is_put_before_texts_is_said_once(names):
    with pytest.raises(OptionError, match=f"{names[0]} and {names[1]}: only one"):
        parse(**dict.fromkeys(names, "query"))


def test_dimensions_up_to_the_vector_length():
    RequestOptions().check_dimensions(4)
    RequestOptions(dimensions=4).check_dimensions(4)
    with pytest.raises(OptionError, match="dimensions: 5, but the model's vectors have 4"):
        RequestOptions(dimensions=5).check_dimensions(4)


class TestSplit:
    @pytest.mark.parametrize("overlap", [None, 0, 7])
    def test_chunks_may_overlap(self, overlap):
        given = {} if overlap is None else {"overlap": overlap}
        assert parse(truncate="split", **given) == RequestOptions(truncate="split", overlap=overlap)

    @pytest.mark.parametrize("value", [-1, True, 1.0, "1"])
    def test_a_bad_overlap_is_named(self, value):
        with pytest.raises(OptionError, match="overlap: must be an integer from 0 on, got"):
            parse(truncate="split", overlap=value)

    @pytest.mark.parametrize("given", [{}, {"truncate": "end"}])
    def test_an_overlap_of_nothing(self, given):
        with pytest.raises(OptionError, match='overlap: only with truncate="split"'):
            parse(overlap=3, **given)

    @pytest.mark.parametrize("kind", [RerankOptions, ClassifyOptions])
    def test_only_vectors_have_a_mean(self, kind):
        with pytest.raises(OptionError, match='truncate: "split" is for vectors only; this model takes none, end and'):
            kind.from_json('{"truncate": "split"}')


@pytest.mark.parametrize(
    ("output", "said"), [("sparse", "sparse"), ("multi", "multi"), ("dense,sparse", "float32,sparse")]
)
def test_only_dense_vectors_can_be_split(output, said):
    with pytest.raises(OptionError) as caught:
        RequestOptions.from_json(json.dumps({"truncate": "split", "output": output}))
    assert str(caught.value) == f'truncate: "split" is for dense vectors only; output is {said}'
    assert RequestOptions.from_json(json.dumps({"truncate": "split", "output": "int8"})).truncate == "split"
