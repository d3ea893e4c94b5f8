"""Reading what Triton 24.10 writes: events of single moments, and a list that is not closed."""

import json

import pytest

from breakdown.triton_trace import read_trace


def events(number, names, *, model=None, parent=None):
    first = {"id": number} | ({"model_name": model} if model else {}) | ({"parent_id": parent} if parent else {})
    return [first] + [{"id": number, "timestamps": [{"name": name, "ns": ns * 1000}]} for name, ns in names.items()]


STEP = ("REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END")


def request(number, start, *, protocol=("HTTP_RECV_START", "HTTP_SEND_END")):
    """One request to `embed` with its two steps; moments in microseconds."""
    whole = {protocol[0]: 0, "REQUEST_START": 10, "INFER_RESPONSE_COMPLETE": 900, protocol[1]: 950}
    first = dict(zip(STEP, (12, 13, 20, 21, 120, 125), strict=True))
    second = dict(zip(STEP, (130, 131, 150, 151, 200, 201), strict=True))
    shifted = [{name: ns + start for name, ns in names.items()} for names in (whole, first, second)]
    return [
        *events(number, shifted[0], model="embed"),
        *events(number + 1, shifted[1], model="tokenizer", parent=number),
        *events(number + 2, shifted[2], model="embedding", parent=number),
    ]


@pytest.fixture
def write(tmp_path):
    def write(listed, closed=True):
        file = tmp_path / "trace.json"
        text = json.dumps(listed)
        file.write_text(text if closed else text[:-1])
        return file

    return write


@pytest.mark.parametrize("closed", [True, False])
def test_the_intervals_of_a_request(write, closed):
    (intervals,) = read_trace(write(request(1, 5000), closed))
    assert intervals.front_in == pytest.approx(0.010)
    assert intervals.to_tokenizer == pytest.approx(0.002)
    assert intervals.tokenizer_queue == pytest.approx(0.008)
    assert intervals.tokenizer == pytest.approx(0.100)
    assert intervals.to_embedding == pytest.approx(0.010)
    assert intervals.embedding_queue == pytest.approx(0.020)
    assert intervals.embedding_accept == pytest.approx(0.050)
    assert intervals.embedding == pytest.approx(0.700)
    assert intervals.front_out == pytest.approx(0.050)
    assert intervals.total == pytest.approx(0.950)


def test_grpc_counts_from_when_the_request_was_read(write):
    listed = request(1, 5000, protocol=("GRPC_WAITREAD_END", "GRPC_SEND_END"))
    listed += events(1, {"GRPC_WAITREAD_START": 0})
    assert read_trace(write(listed))[0].total == pytest.approx(0.950)


def test_requests_come_in_order_and_those_to_other_models_are_left_out(write):
    late = request(10, 9000)
    late[1]["timestamps"][0]["ns"] -= 1_000_000  # read earlier, so that it differs from the other
    listed = late + request(1, 5000) + events(20, {"REQUEST_START": 1}, model="tokenizer")
    assert [intervals.front_in for intervals in read_trace(write(listed))] == pytest.approx([0.010, 1.010])
