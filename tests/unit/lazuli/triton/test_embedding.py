import threading
import time

import numpy as np
import pytest
import torch

from lazuli.errors import ConfigError, DeviceError
from lazuli.triton.shared_memory import AnswerRoom


@pytest.fixture
def checkpoint(tmp_path, write_bert):
    return str(write_bert(tmp_path, max_position_embeddings=128))


@pytest.fixture
def start(load, arguments, checkpoint):
    models = []

    def start(decoupled=None, **parameters):
        model = load("embedding").TritonPythonModel()
        parameters = {"checkpoint": checkpoint, "device": "cpu", "dtype": "float32"} | parameters
        model.initialize(arguments(decoupled=decoupled, **parameters))
        models.append(model)
        return model

    yield start
    for model in models:
        if model._service._runner._thread.is_alive():
            model.finalize()


def ask(pb_utils, *lengths, **parameters):
    width = max(lengths)
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int8)
    return pb_utils.Request(parameters, input_ids=np.full(mask.shape, 7, dtype=np.int32), attention_mask=mask)


@pytest.mark.parametrize("decoupled", [None, False])
def test_a_unary_answer_is_one_final_response(start, pb_utils, decoupled):
    model = start(decoupled, token_budget="16")
    request = ask(pb_utils, 16, 3, 16, 9)
    assert model.execute([request]) is None
    sender = request.wait()
    assert sender.flags == [1]
    tensors = sender.responses[0].tensors
    assert set(tensors) == {"embedding", "token_count"}
    assert tensors["embedding"].shape == (4, 32)
    assert tensors["embedding"].dtype == np.float32
    assert tensors["token_count"].tolist() == [[16], [3], [16], [9]]
    assert tensors["token_count"].dtype == np.int32


def test_a_decoupled_answer_comes_in_parts_and_the_last_is_final(start, pb_utils):
    model = start(True, token_budget="16")
    request = ask(pb_utils, 16, 3, 16, 9)
    model.execute([request])
    sender = request.wait()
    assert len(sender.responses) > 1
    assert sender.flags == [0] * (len(sender.flags) - 1) + [1]
    index = np.concatenate([response.tensors["index"] for response in sender.responses])
    counts = np.concatenate([response.tensors["token_count"] for response in sender.responses])
    assert index.dtype == counts.dtype == np.int32
    assert sorted(index[:, 0].tolist()) == [0, 1, 2, 3]
    assert counts[np.argsort(index[:, 0]), 0].tolist() == [16, 3, 16, 9]


@pytest.mark.parametrize("decoupled", [False, True])
def test_an_answer_without_room_waits_and_then_becomes_an_error(start, pb_utils, decoupled):
    """Triton gives a response sender up before it finds out that memory is short."""

    class Pool:
        free = 10**9

        def free_memory(self):
            return self.free

    model, pool = start(decoupled), Pool()
    model._room = AnswerRoom(pool, patience_s=0.05, folder_bytes=lambda: 0)
    request = ask(pb_utils, 3)
    model.execute([request])
    assert request.wait().responses[0].error is None
    pool.free = 1000
    request = ask(pb_utils, 3)
    model.execute([request])
    sender = request.wait()
    assert sender.flags == [1]
    assert sender.responses[0].error.code == pb_utils.TritonError.UNAVAILABLE
    assert "shared memory is full: no room for" in sender.responses[0].error.message()


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_bad_request_gets_one_final_error_and_the_others_their_answer(start, pb_utils, decoupled):
    model = start(decoupled)
    bad = [
        (pb_utils.Request(input_ids=np.ones((1, 2), np.int32)), "attention_mask: the input is missing"),
        (ask(pb_utils, 2, trunkate="end"), "unknown parameter 'trunkate'"),
        (ask(pb_utils, 2, dimensions=33), "dimensions: 33, but"),
        (ask(pb_utils, 2, 129), "input_ids[1]: 129 tokens, but the model takes at most 128"),
    ]
    good = [ask(pb_utils, 3), ask(pb_utils, 4, 5)]
    model.execute([good[0], *[request for request, _ in bad], good[1]])
    for request, text in bad:
        sender = request.wait()
        assert sender.flags == [1]
        assert sender.responses[0].error.message().startswith(text)
        assert sender.responses[0].error.code == pb_utils.TritonError.INVALID_ARG
    for request in good:
        assert all(response.error is None for response in request.wait().responses)


def test_an_unexpected_error_is_an_answer_too(start, pb_utils, monkeypatch):
    model = start()

    def fail(*arguments, **options):
        raise KeyError("odd")

    monkeypatch.setattr(model._service, "submit", fail)
    requests = [ask(pb_utils, 2) for _ in range(2)]
    model.execute(requests)
    alone = model.execute([ask(pb_utils, 2)])
    for response in [*alone, *(request.wait().responses[0] for request in requests)]:
        assert response.error.code == pb_utils.TritonError.INTERNAL
        assert response.error.message() == "unexpected KeyError: 'odd'"


@pytest.mark.parametrize(("num_requests", "may_step"), [(1, True), (2, False)])
def test_only_a_request_that_came_alone_may_be_stepped_at_once(start, pb_utils, monkeypatch, num_requests, may_step):
    model, seen = start(), []
    submit = model._service.submit
    monkeypatch.setattr(
        model._service,
        "submit",
        lambda *args, may_step, **more: seen.append(may_step) or submit(*args, may_step=may_step, **more),
    )
    requests = [ask(pb_utils, 2) for _ in range(num_requests)]
    model.execute(requests)
    for request in requests:
        assert request.wait().flags == [1]
    assert seen == [may_step] * num_requests


@pytest.mark.parametrize(("rows", "waits"), [(1, True), (511, True), (512, False), (1024, False)])
def test_room_is_waited_for_unless_more_may_wait_in_tritons_queue(start, pb_utils, monkeypatch, rows, waits):
    model, waited = start(), []
    model._max_rows, model._has_siblings = 1024, True
    monkeypatch.setattr(model._service, "wait_for_room", lambda: waited.append(True))
    monkeypatch.setattr(model._service, "submit", lambda *args, **permissions: None)
    model.execute([ask(pb_utils, *[1] * rows)])
    assert waited == [True] * waits


@pytest.mark.parametrize(
    ("groups", "waits"),
    [
        ([{"kind": "KIND_CPU", "count": 1}], False),
        ([{"kind": "KIND_CPU", "count": 2}], True),
        ([{"kind": "KIND_GPU", "count": 1, "gpus": [0]}], False),
        ([{"kind": "KIND_GPU", "count": 1, "gpus": [0, 1]}], True),
        ([{"kind": "KIND_GPU", "count": 1, "gpus": [0]}, {"kind": "KIND_CPU", "count": 1}], True),
        ([], False),
    ],
)
def test_room_is_waited_for_only_where_another_instance_may_have_some(load, pb_utils, monkeypatch, groups, waits):
    """In Triton's queue, a query would wait behind bulk."""
    model, waited = load("embedding").TritonPythonModel(), []
    protocol = load("protocol")
    model._max_rows, model._has_siblings = 1024, protocol.count_instances({"instance_group": groups}) > 1
    model._service = type("Service", (), {"wait_for_room": lambda self: waited.append(True)})()
    model._wait_for_room(1)
    assert waited == [True] * waits


@pytest.fixture
def held(start):
    """A model whose steps wait for a gate, which opens at the end in any case; and the batches that it stepped."""
    gate, stepped = threading.Event(), []

    def hold(decoupled):
        model = start(decoupled, token_budget="16")
        step = model._service.engine.step

        def wait_and_step(batch):
            assert gate.wait(10)
            stepped.append(batch)
            return step(batch)

        model._service.engine.step = wait_and_step
        return model, gate, stepped

    yield hold
    gate.set()


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_request_that_is_late_is_answered_without_being_computed(held, pb_utils, decoupled):
    model, gate, stepped = held(decoupled)
    first, late = ask(pb_utils, 16), ask(pb_utils, 9, 9, 9, deadline_ms=1)
    model.execute([first, late])
    time.sleep(0.02)
    gate.set()
    sender = late.wait()
    assert sender.flags == [1]
    assert sender.responses[0].error.code == pb_utils.TritonError.CANCELLED
    assert sender.responses[0].error.message().startswith("timed out: the deadline of 1 ms was over")
    assert first.wait().responses[0].error is None
    assert sum(batch.num_sequences for batch in stepped) < 4


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_request_that_is_given_up_is_not_computed(held, pb_utils, decoupled):
    model, gate, stepped = held(decoupled)
    requests = [ask(pb_utils, 16), ask(pb_utils, 16), ask(pb_utils, 9, 9, 9), ask(pb_utils, 16)]
    model.execute(requests)
    requests[2].sender.cancelled = True
    sender = requests[2].wait()  # while the device is still busy with the first
    assert not stepped
    assert sender.flags == [1]
    assert sender.responses[0].error.code == pb_utils.TritonError.CANCELLED
    assert sender.responses[0].error.message().startswith("cancelled: ")
    gate.set()
    for number in (0, 1, 3):
        assert requests[number].wait().responses[0].error is None
    assert [batch.num_sequences for batch in stepped] == [1, 1, 1]
    assert model._service._scheduler.queued_tokens == 0
    outcomes = [outcome for outcome, *_ in model._service.recorder.requests]
    assert sorted(outcomes) == ["cancelled", "ok", "ok", "ok"]


def test_tritons_own_timeout_is_a_deadline(held, pb_utils):
    model, gate, stepped = held(False)
    first, late = ask(pb_utils, 16), ask(pb_utils, 9, 9, 9)
    late.timeout_us = 1_500
    model.execute([first, late])
    time.sleep(0.02)
    gate.set()
    error = late.wait().responses[0].error
    assert error.message().startswith("timed out: the deadline of 1 ms was over")
    assert first.wait().responses[0].error is None
    assert sum(batch.num_sequences for batch in stepped) < 4


def test_too_much_is_refused_as_unavailable(start, pb_utils, monkeypatch):
    model = start(token_budget="4", max_queued_tokens="1", max_waiting_tokens="4")
    monkeypatch.setattr(model._service, "wait_for_room", lambda: None)
    requests = [ask(pb_utils, *[4] * 8) for _ in range(40)]
    model.execute(requests)
    codes = []
    for request in requests:
        error = request.wait().responses[0].error
        codes.append(None if error is None else error.code)
    assert set(codes) == {None, pb_utils.TritonError.UNAVAILABLE}


def test_options_reach_the_engine(start, pb_utils):
    model = start()
    request = ask(pb_utils, 5, dimensions=4, force_dimensions=True, normalize=False)
    model.execute([request])
    assert request.wait().responses[0].tensors["embedding"].shape == (1, 4)


@pytest.mark.parametrize("decoupled", [False, True])
def test_requests_that_share_batches_get_each_its_own_encoding(start, pb_utils, decoupled):
    model = start(decoupled, token_budget="16")
    wanted = {
        "float32": ("embedding", np.float32, 32),
        "float16": ("embedding_float16", np.float16, 32),
        "binary": ("embedding_binary", np.int8, 4),
        "ubinary": ("embedding_ubinary", np.uint8, 4),
    }
    requests = {output: ask(pb_utils, 3, 5, 9, 2, output=output) for output in wanted}
    model.execute(list(requests.values()))
    found = {}
    for output, (name, dtype, columns) in wanted.items():
        tensors = [response.tensors for response in requests[output].wait().responses]
        assert all(set(part) == {name, "token_count", *(["index"] if decoupled else [])} for part in tensors)
        values = np.concatenate([part[name] for part in tensors])
        if decoupled:
            values = values[np.argsort(np.concatenate([part["index"][:, 0] for part in tensors]))]
        assert (values.dtype, values.shape) == (dtype, (4, columns))
        found[output] = values
    np.testing.assert_allclose(found["float16"], found["float32"], atol=1e-3)
    bits = np.packbits(found["float32"] > 0, axis=1)
    assert found["ubinary"].tolist() == bits.tolist()
    assert found["binary"].tolist() == (bits.astype(np.int16) - 128).tolist()


def test_an_output_that_the_model_does_not_have(start, pb_utils):
    requests = {output: ask(pb_utils, 3, output=output) for output in ("int8", "float64", "int8,uint8")}
    start().execute(list(requests.values()))
    for output, text in (
        ("int8", "output: int8 needs the range"),
        ("float64", "output: must be one of dense, float32,"),
        ("int8,uint8", "output: int8 and uint8: only one"),
    ):
        error = requests[output].wait().responses[0].error
        assert error.message().startswith(text)
        assert error.code == pb_utils.TritonError.INVALID_ARG


def test_finalize_answers_what_is_left_and_then_nothing_enters(start, pb_utils):
    model = start(token_budget="16")
    requests = [ask(pb_utils, 16, 16) for _ in range(10)]
    model.execute(requests)
    model.finalize()
    assert all(request.sender.ended.is_set() for request in requests)
    (response,) = model.execute([ask(pb_utils, 2)])
    assert response.error.code == pb_utils.TritonError.UNAVAILABLE


class TestReturning:
    """A request that comes alone and is run by the thread inside `execute()`, as on a GPU."""

    @pytest.fixture
    def start(self, start, monkeypatch):
        def start_stepping(decoupled=None, **parameters):
            model = start(decoupled, **parameters)
            monkeypatch.setattr(model._service.engine, "device", torch.device("cuda"))
            return model

        return start_stepping

    @staticmethod
    def forget_the_last(model):
        model._returned_at = model._overlapped_at = float("-inf")

    def test_its_response_is_returned(self, start, pb_utils):
        model = start()
        for lengths in ([5], [3, 7, 1]):
            self.forget_the_last(model)
            request, same = (ask(pb_utils, *lengths) for _ in range(2))
            (response,) = model.execute([request])
            assert not request.sender.responses
            model.execute([same, ask(pb_utils, 2)])
            sent = same.wait().responses[0]
            assert set(response.tensors) == {"embedding", "token_count"}
            np.testing.assert_allclose(response.tensors["embedding"], sent.tensors["embedding"], atol=1e-6)
            assert response.tensors["token_count"].tolist() == [[length] for length in lengths]

    def test_an_error_is_returned(self, start, pb_utils):
        (response,) = start().execute([ask(pb_utils, 129)])
        assert response.error.message().startswith("input_ids[0]: 129 tokens")

    def test_not_soon_after_the_last_was_returned(self, start, pb_utils, monkeypatch):
        """It waited in Triton's queue, so others may come while it runs."""
        now = 1000.0
        monkeypatch.setattr("lazuli.triton.engine_model.time.monotonic", lambda: now)
        model, requests = start(), [ask(pb_utils, 5) for _ in range(4)]
        seen = []
        for request, pause in zip(requests, (1.0, 0.0002, 0.09, 0.1), strict=True):
            now += pause
            seen.append(model.execute([request]) is not None)
            if not seen[-1]:
                assert request.wait().flags == [1]
        assert seen == [True, False, False, True]

    def test_not_after_several_came_together(self, start, pb_utils):
        model, requests = start(), [ask(pb_utils, 5) for _ in range(3)]
        model.execute(requests[:2])
        for request in requests[:2]:
            request.wait()
        assert model.execute(requests[2:]) is None
        assert requests[2].wait().flags == [1]

    def test_not_while_the_one_before_is_unanswered(self, start, pb_utils, monkeypatch):
        model, requests = start(), [ask(pb_utils, 5) for _ in range(2)]
        submit = model._service.submit
        monkeypatch.setattr(model._service, "submit", lambda *args, **permissions: None)
        model.execute(requests[:1])
        monkeypatch.setattr(model._service, "submit", submit)
        assert model.execute(requests[1:]) is None
        assert requests[1].wait().flags == [1]

    def test_a_decoupled_model_returns_nothing(self, start, pb_utils):
        requests = [ask(pb_utils, 5), ask(pb_utils, 129)]
        model = start(True)
        for request in requests:
            self.forget_the_last(model)
            assert model.execute([request]) is None
            assert request.wait().flags == [1]

    @pytest.mark.parametrize("broken", ["step", "result"])
    def test_a_failure_of_the_device_is_an_answer(self, start, pb_utils, monkeypatch, broken):
        class Lost:
            def result(self):
                raise RuntimeError("lost")

        def step(batch):
            if broken == "step":
                raise RuntimeError("lost")
            return Lost()

        model = start()
        monkeypatch.setattr(model._service.engine, "step", step)
        request = ask(pb_utils, 5)
        assert model.execute([request]) is None
        error = request.wait().responses[0].error
        assert "lost" in error.message()
        assert error.code == getattr(pb_utils.TritonError, DeviceError.triton_code)


def test_a_bad_parameter_stops_the_model_from_loading(start):
    with pytest.raises(ConfigError, match="unknown parameter 'max_sequences'"):
        start(max_sequences="3")
