"""What an engine model leaves for its metrics, over a stand-in for Triton."""

import numpy as np
import pytest

from lazuli.errors import DeviceError


@pytest.fixture
def start(load, arguments, tmp_path, write_bert):
    checkpoint = str(write_bert(tmp_path, max_position_embeddings=128))
    models = []

    def start(decoupled=None, **parameters):
        model = load("embedding").TritonPythonModel()
        parameters = {"checkpoint": checkpoint, "device": "cpu", "dtype": "float32"} | parameters
        model.initialize(arguments(decoupled=decoupled, **parameters))
        models.append(model)
        return model

    yield start
    for model in models:
        model.finalize()


def ask(pb_utils, *lengths, **parameters):
    width = max(lengths)
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int8)
    return pb_utils.Request(parameters, input_ids=np.full(mask.shape, 7, dtype=np.int32), attention_mask=mask)


def answer(model, *requests):
    if model.execute(list(requests)) is None:  # else the answer to a lone request is there
        for request in requests:
            request.wait()


def close_and_count(model, *names):
    """What was counted once all threads are done."""
    model._service.close()
    samples = model._service.metrics.collect()
    values = {(s.family.name, *(value for _, value in s.labels)): s.value for s in samples}
    return [values[name] if isinstance(name, tuple) else values[name,] for name in names]


@pytest.fixture
def closed_once(monkeypatch):
    """`finalize` closes a service that a test has closed already."""
    from lazuli.service import EmbeddingService

    close = EmbeddingService.close

    def close_once(self):
        if self._runner._thread.is_alive():
            close(self)

    monkeypatch.setattr(EmbeddingService, "close", close_once)


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_request_with_its_batches(start, pb_utils, closed_once, decoupled):
    model = start(decoupled, token_budget="16")
    answer(model, ask(pb_utils, 16, 3, 16, 9))
    requests, texts, tokens, batches, batch_tokens, replies, waiting = close_and_count(
        model,
        ("lazuli_requests_total", "ok"),
        ("lazuli_texts_total", "ok"),
        ("lazuli_tokens_total", "ok"),
        "lazuli_step_seconds_count",
        "lazuli_batch_tokens_sum",
        "lazuli_reply_seconds_count",
        "lazuli_queue_tokens",
    )
    assert (requests, texts, tokens) == (1, 4, 44)
    assert batch_tokens == 44
    assert batches >= 3
    assert replies == batches
    assert waiting == 0


def test_what_is_wrong_is_counted_by_kind(start, pb_utils, closed_once):
    model = start()
    answer(model, ask(pb_utils, 5, 6, dimensions=999))
    answer(model, ask(pb_utils, 200))
    answer(model, pb_utils.Request())
    options, options_texts, inputs, inputs_tokens, ok = close_and_count(
        model,
        ("lazuli_requests_total", "OptionError"),
        ("lazuli_texts_total", "OptionError"),
        ("lazuli_requests_total", "InputError"),
        ("lazuli_tokens_total", "InputError"),
        ("lazuli_requests_total", "ok"),
    )
    assert (options, options_texts) == (1, 2)
    assert (inputs, inputs_tokens) == (2, 200), "one of them could not be read at all"
    assert ok == 0


def test_a_pass_that_fails(start, pb_utils, closed_once, monkeypatch):
    model = start()

    def fail(batch):
        raise DeviceError("no memory is left")

    monkeypatch.setattr(model._service.engine, "step", fail)
    answer(model, ask(pb_utils, 5, 6))
    failed, texts, batches = close_and_count(
        model,
        ("lazuli_requests_total", "DeviceError"),
        ("lazuli_texts_total", "DeviceError"),
        "lazuli_step_seconds_count",
    )
    assert (failed, texts, batches) == (1, 2, 0)


def test_off_keeps_nothing(start, pb_utils, closed_once):
    model = start(metrics="off")
    answer(model, ask(pb_utils, 5))
    model._service.close()
    recorder = model._service.recorder
    assert not recorder.requests
    assert not recorder.steps
    assert not recorder.replies
    assert not pb_utils.MetricFamily.metrics
