import json

import pytest

from lazuli.options import RequestOptions
from lazuli.tracing.context import read_context, trace_id, without_context

TRACE = "0af7651916cd43dd8448eb211c80319c"
NEAR, FAR = f"00-{TRACE}-00f067aa0ba902b7-01", f"00-{TRACE}-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_context_of_a_caller():
    parameters = json.dumps({"truncate": "end", "traceparent": FAR, "tracestate": "a=b"})
    assert read_context(parameters) == {"traceparent": FAR, "tracestate": "a=b"}
    assert trace_id(read_context(parameters)) == TRACE


@pytest.mark.parametrize("name", ["Traceparent", "TraceParent", "traceparent"])
def test_a_header_in_its_usual_spellings(name):
    assert read_context(json.dumps({name: FAR})) == {"traceparent": FAR}


def test_of_a_header_and_a_parameter_the_last_counts():
    assert read_context(f'{{"traceparent": "{FAR}", "traceparent": "{OTHER}"}}') == {"traceparent": OTHER}
    assert read_context(json.dumps({"traceparent": FAR, "Traceparent": OTHER})) == {"traceparent": OTHER}


@pytest.mark.parametrize("value", ["", "nonsense", FAR.upper(), FAR[:-1], f"{FAR}0", 4, None, True, ["x"]])
def test_a_malformed_one_is_none(value):
    assert read_context(json.dumps({"traceparent": value, "tracestate": "a=b"})) == {}


@pytest.mark.parametrize("parameters", ["", "{}", '{"tracestate": "a=b"}', '{"instruction": "a transparent thing"}'])
def test_there_may_be_none(parameters):
    assert read_context(parameters) == {}
    assert trace_id({}) is None


def test_a_span_of_the_server_is_nearer_if_it_is_of_the_same_trace():
    of_server = json.dumps({"traceparent": NEAR})
    assert read_context(json.dumps({"traceparent": FAR}), of_server) == {"traceparent": NEAR}
    assert read_context(json.dumps({"traceparent": OTHER}), of_server) == {"traceparent": OTHER}
    assert read_context("{}", of_server) == {"traceparent": NEAR}
    assert read_context("", None) == {}


def test_parameters_without_it_are_the_same_for_all_requests():
    first, second = (f'{{"truncate":"end","traceparent":"{value}","Tracestate":"x"}}' for value in (FAR, OTHER))
    assert json.loads(without_context(first)) == {"truncate": "end"}
    assert without_context(first) == without_context(second)
    assert json.loads(without_context('{"truncate":"end"}')) == {"truncate": "end"}


def test_options_do_not_see_it_and_are_parsed_once():
    options = [
        RequestOptions.from_json(json.dumps({"truncate": "start", "dimensions": 7, "traceparent": value}))
        for value in (FAR, OTHER, 7)
    ]
    assert options[0].truncate == "start"
    assert options[0] is options[1] is options[2]
    assert RequestOptions.from_json('{"tracestate": "a=b"}') == RequestOptions()
