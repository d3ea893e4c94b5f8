"""`lazuli verify` of models of a running server, and the client's own check of each."""

import pytest

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from lazuli.repository.addition import Wish, add
from lazuli.repository.names import Task
from lazuli_client import LazuliClient

from .serving import run

MINILM = "all-MiniLM-L6-v2"
MODELS = {"vectors": Task.EMBED, "judge": Task.RERANK, "chunks": Task.CONTEXT}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models") / "added"
    for name, task in MODELS.items():
        add(Wish(name, MINILM, repository, task=task, door=Door.UNARY), lambda text: None)
    options = ServeOptions(model_repositories=(repository,))
    with running_server(options, environment={"LAZULI_DTYPE": "float32"}) as running:
        yield running


def verify(url, model, *arguments):
    return run("verify", model, "--url", url, "--checkpoint", MINILM, "--task", MODELS[model], *arguments)


@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        ("vectors", ("--min-cosine", 0.99999)),
        ("vectors", ("--output", "binary")),
        ("judge", ("--max-score-difference", 0.001)),
        ("chunks", ("--min-cosine", 0.99999)),
    ],
)
def test_by_grpc(server, model, arguments):
    done = verify(server.grpc, model, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("passed\n")


def test_by_http(server):
    assert verify(server.http, "vectors", "--protocol", "http", "--output", "float16").returncode == 0


def test_what_a_server_refuses_is_told(server):
    done = verify(server.grpc, "vectors", "--output", "int8")
    assert done.returncode == 2
    assert "lazuli calibrate" in done.stderr
    done = run("verify", "nothing", "--url", server.grpc, "--checkpoint", MINILM)
    assert done.returncode == 2
    assert "error: " in done.stderr


@pytest.mark.parametrize("model", MODELS)
def test_health(server, model):
    with LazuliClient(server.grpc, model=model) as client:
        assert client.health(MODELS[model].value).is_ready
        wrong = client.health("rerank" if model != "judge" else "context")
    assert not wrong.is_ready


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--url", "nonsense"), "error: url: 'nonsense': there is no port in it"),
        (("--url", "here:1", "--dtype", "float16"), "error: dtype: only without --url"),
        (("--url", "here:1", "--pooling", "cls"), "error: pooling: only without --url"),
    ],
)
def test_options_that_do_not_fit(arguments, words):
    done = run("verify", "embed", *arguments, "--checkpoint", MINILM)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
