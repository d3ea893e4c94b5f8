from types import SimpleNamespace

import pytest

from lazuli.launch import probe
from lazuli.launch.addresses import Addresses
from lazuli.launch.probe import ProbeError, Prober, probe_http
from lazuli.launch.probe_model import outer_models, probe_model
from lazuli.launch.rest import RestError


def config(name, *, decoupled=False, steps=(), inputs=(("text", "TYPE_STRING", [1]),)):
    return {
        "name": name,
        "max_batch_size": 8,
        "input": [{"name": n, "data_type": t, "dims": d} for n, t, d in inputs],
        "model_transaction_policy": {"decoupled": decoupled},
        "ensemble_scheduling": {"step": [{"model_name": step} for step in steps]},
    }


IDS = (("input_ids", "TYPE_INT32", ["-1"]), ("attention_mask", "TYPE_INT8", [-1]))


@pytest.fixture
def models():
    configs = [
        config("tokenizer"),
        config("embedding", inputs=IDS),
        config("embedding_stream", inputs=IDS, decoupled=True),
        config("embed", steps=("tokenizer", "embedding")),
        config("embed_stream", steps=("tokenizer", "embedding_stream")),
    ]
    by_name = {one["name"]: one for one in configs}
    return {one["name"]: probe_model(one, by_name) for one in configs}


def test_inputs_are_made_from_the_configuration(models):
    assert models["embed"].inputs == (("text", "BYTES", (1, 1)),)
    assert models["embedding"].inputs == (("input_ids", "INT32", (1, 4)), ("attention_mask", "INT8", (1, 4)))


def test_an_ensemble_is_decoupled_by_its_steps(models):
    assert models["embed_stream"].decoupled
    assert not models["embed"].decoupled


def test_outer_models_are_steps_of_none(models):
    assert [model.name for model in outer_models(list(models.values()))] == ["embed", "embed_stream"]


def answering(monkeypatch, answer):
    def call(*args, **kwargs):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(probe, "call", call)


@pytest.mark.parametrize(
    ("answer", "busy", "silent"),
    [
        (RestError(503, "Exceeds maximum queue size"), True, False),
        (RestError(500, "not healthy"), False, False),
        (TimeoutError("timed out"), False, True),
        (ConnectionRefusedError("refused"), False, False),
        ({"outputs": [{"name": "embedding", "datatype": "FP32", "data": [1.0, float("nan")]}]}, False, False),
    ],
)
def test_what_an_error_over_http_means(models, monkeypatch, answer, busy, silent):
    answering(monkeypatch, answer)
    with pytest.raises(ProbeError, match="embed over HTTP") as caught:
        probe_http("x", models["embed"], 1.0)
    assert (caught.value.busy, caught.value.silent) == (busy, silent)


def test_a_whole_answer_passes(models, monkeypatch):
    answering(monkeypatch, {"outputs": [{"name": "embedding", "datatype": "FP32", "data": [1.0]}]})
    probe_http("x", models["embed"], 1.0)


@pytest.mark.parametrize(
    ("status", "message", "busy", "silent"),
    [
        ("StatusCode.UNAVAILABLE", "Exceeds maximum queue size", True, False),
        ("StatusCode.UNAVAILABLE", "failed to connect to all addresses", False, False),
        ("StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded", False, True),
        ("StatusCode.INTERNAL", "not healthy", False, False),
    ],
)
def test_what_an_error_over_grpc_means(models, status, message, busy, silent):
    error = SimpleNamespace(status=lambda: status, message=lambda: message)
    result = probe._grpc_error(models["embed"], error)
    assert (result.busy, result.silent) == (busy, silent)


@pytest.mark.parametrize("answer", [None, RestError(403, "closed"), ConnectionRefusedError("refused")])
def test_only_silence_says_that_the_server_is_silent(monkeypatch, answer):
    answering(monkeypatch, answer)
    Prober(Addresses("h", "g", "m"), "").probe_server(1.0)
    answering(monkeypatch, TimeoutError("timed out"))
    with pytest.raises(ProbeError, match="answers nothing within 1 s") as caught:
        Prober(Addresses("h", "g", "m"), "").probe_server(1.0)
    assert caught.value.silent


def test_the_names_of_all_models_are_in_the_metrics(monkeypatch):
    text = """# TYPE nv_inference_request_success counter
nv_inference_request_success{model="embed",version="1"} 0
nv_inference_request_success{model="a.tokenizer",version="1"} 3
nv_inference_request_failure{model="gone",version="1"} 1
nv_inference_request_success{model="embed",version="2"} 0
"""
    monkeypatch.setattr(probe, "read_text", lambda address, path: text)
    assert Prober(Addresses("h", "g", "m"), "").measured_models() == ["embed", "a.tokenizer"]


def test_a_model_that_is_named_alone_is_known_by_its_steps(monkeypatch):
    configs = {
        "embed_stream": config("embed_stream", steps=("tokenizer", "embedding_stream")),
        "tokenizer": config("tokenizer"),
        "embedding_stream": config("embedding_stream", inputs=IDS, decoupled=True),
    }
    monkeypatch.setattr(Prober, "_config", lambda self, name: configs[name])
    (model,) = Prober(Addresses("h", "g", "m"), "").find_models(["embed_stream"])
    assert model.decoupled
    assert model.steps == ("tokenizer", "embedding_stream")
