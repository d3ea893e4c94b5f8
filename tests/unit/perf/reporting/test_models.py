"""Tables of the pages of model families, from made-up lines."""

import pytest

from reporting.models import NOT_MEASURED, accuracy_tables, fill_page

ORIGIN = {"reference": "transformers 9", "machine": "a box", "torch": "8.0", "commit": "abc", "len": "3-400"}
COMMON = ORIGIN | {"level": "engine", "suite": "accuracy", "texts": 11, "note": "random weights, 4 layers"}


def of_vectors(model, dtype, least, mean, output="vectors"):
    cosines = {"min_cosine": least, "mean_cosine": mean, "other_cosine": 0.314}
    return COMMON | {"model": model, "dtype": dtype, "output": output} | cosines


def of_scores(model, dtype, difference):
    return COMMON | {"model": model, "dtype": dtype, "output": "score", "max_difference": difference, "spread": 1.25}


def timing(suite, protocol=None, **more):
    line = {"suite": suite, "level": "server" if protocol else "engine", "model": "shape", **ORIGIN, **more}
    return line | ({"protocol": protocol} if protocol else {})


LINES = [
    of_vectors("org/one", "float32", 0.99999999, 1.0),
    of_vectors("org/one", "bfloat16", 0.9991234, 0.9997),
    of_scores("org/judge", "float32", 1.4e-7),
    of_scores("org/judge", "bfloat16", 0.0123),
    of_vectors("org/unseen", "float32", 0.5, 0.5),
]
RESULTS = {
    "box/accuracy": LINES,
    "gpu/engine_one": [timing("start"), timing("latency"), timing("captures")],
    "gpu/server_one": [timing("latency", "http"), timing("throughput", "grpc")],
}


def show(lines):
    return " ".join(f"{line['suite']}/{line.get('protocol')}" for line in lines)


def test_a_row_for_each_output_and_columns_for_each_dtype():
    vectors, scores, origin = accuracy_tables(LINES[:4])
    assert vectors.splitlines() == [
        "| checkpoint | weights | output | float32: least cosine | float32: mean | bfloat16: least cosine "
        "| bfloat16: mean | of different texts |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
        "| org/one | random weights, 4 layers | vectors | 1.0000000 | 1.0000000 | 0.9991234 | 0.9997000 | 0.31 |",
    ]
    assert scores.splitlines()[2] == ("| org/judge | random weights, 4 layers | score | 1.4e-07 | 1.2e-02 | 1.25 |")
    assert origin == "11 texts of 3-400 tokens against transformers 9; a box; torch 8.0; commit abc"


def test_outputs_of_one_checkpoint_have_rows_of_their_own():
    lines = [of_vectors("one", "float32", 1, 1), of_vectors("one", "float32", 1, 1, "sparse")]
    assert [row.split(" | ")[2] for row in accuracy_tables(lines)[0].splitlines()[2:]] == ["vectors", "sparse"]


def test_what_one_dtype_lacks_is_empty():
    lines = [of_scores("one", "float32", 1.0), of_scores("two", "bfloat16", 2.0)]
    rows = [row.split(" | ")[3:5] for row in accuracy_tables(lines)[0].splitlines()[2:]]
    assert rows == [["1.0e+00", ""], ["", "2.0e+00"]]


def test_only_what_a_page_names_is_filled():
    page = (
        "# One\n<!-- accuracy: org/judge -->\nold\n<!-- /accuracy -->\ntext\n"
        "<!-- figures: gpu/engine_one, gpu/server_one -->\n<!-- /figures -->\nend\n"
    )
    filled = fill_page(page, RESULTS, show)
    assert "org/judge" in filled
    assert "org/one" not in filled
    assert "old" not in filled
    assert "\nlatency/None throughput/grpc\n" in filled, "without start, captures and HTTP"
    assert "\nshape, engine in process; a box; torch 8.0; commit abc. shape, through the server; a box" in filled
    assert filled.startswith("# One\n<!-- accuracy: org/judge -->\n")
    assert filled.endswith("<!-- /figures -->\nend\n")
    assert fill_page(filled, RESULTS, show) == filled


def test_figures_that_nobody_measured():
    page = "<!-- figures: gpu/other -->\n<!-- /figures -->\n"
    assert fill_page(page, RESULTS, show) == f"<!-- figures: gpu/other -->\n{NOT_MEASURED}\n<!-- /figures -->\n"


def test_accuracies_that_nobody_measured_are_an_error():
    with pytest.raises(ValueError, match=r"no accuracy of org/more in perf/results"):
        fill_page("<!-- accuracy: org/one, org/more -->\n<!-- /accuracy -->", RESULTS, show)
