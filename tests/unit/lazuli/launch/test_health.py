import re

import pytest

from lazuli.launch.health import check_health
from lazuli.launch.options import ServeOptions
from lazuli.launch.probe import ProbeError, Prober
from lazuli.launch.probe_model import ProbeModel

MODELS = {
    "embed": ProbeModel("embed", (), False, steps=("tokenizer",)),
    "rerank": ProbeModel("rerank", (), False),
    "tokenizer": ProbeModel("tokenizer", (), False),
}


@pytest.fixture
def prober(monkeypatch):
    """What the server has, and which models fail how."""
    failing = {}

    def probe(self, model, timeout_s):
        if model.name in failing:
            raise failing[model.name]

    monkeypatch.setattr(Prober, "measured_models", lambda self: list(MODELS))
    monkeypatch.setattr(Prober, "find_models", lambda self, names: [MODELS[name] for name in names])
    monkeypatch.setattr(Prober, "probe", probe)
    return failing


def test_all_models_are_asked_but_steps(prober, capsys):
    assert check_health(ServeOptions(), [], 1.0) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["ok", "embed"], ["ok", "rerank"]]


def test_one_that_fails_is_enough(prober, capsys):
    prober["rerank"] = ProbeError("rerank over HTTP: timed out", silent=True)
    assert check_health(ServeOptions(), [], 1.0) == 1
    assert "FAIL  rerank over HTTP: timed out" in capsys.readouterr().out
    assert check_health(ServeOptions(), ["embed", "tokenizer"], 1.0) == 0


def test_a_full_queue_is_a_sign_of_life(prober, capsys):
    prober["embed"] = ProbeError("embed over HTTP: Exceeds maximum queue size", busy=True)
    assert check_health(ServeOptions(), [], 1.0) == 0
    assert capsys.readouterr().out.startswith("busy  embed")


def test_the_port_that_fails_is_named_with_its_option(monkeypatch, capsys):
    options = ServeOptions(http_port=1, grpc_port=2, metrics_port=3)
    assert check_health(options, [], 1.0) == 1
    assert re.search(r"^FAIL .* metrics.* at 127.0.0.1:3 \(--metrics-port\): .*refused", capsys.readouterr().out)
    assert check_health(options, ["embed"], 1.0) == 1
    assert re.search(r"^FAIL .* server at 127.0.0.1:1 \(--http-port\): .*refused", capsys.readouterr().out)
    monkeypatch.setattr(Prober, "measured_models", lambda self: ["embed"])
    assert check_health(options, [], 1.0) == 1
    assert re.search(r"^FAIL .* server at 127.0.0.1:1 \(--http-port\): .*refused", capsys.readouterr().out)


def test_no_model(prober, monkeypatch, capsys):
    monkeypatch.setattr(Prober, "measured_models", lambda self: [])
    assert check_health(ServeOptions(), [], 1.0) == 1
    assert "no model" in capsys.readouterr().out
