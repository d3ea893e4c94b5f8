from pathlib import Path

import pytest
from typer.testing import CliRunner

from lazuli import cli
from lazuli.launch import serve as serve_module
from lazuli.launch.errors import LaunchError
from lazuli.launch.options import Door, LogLevel


@pytest.fixture
def served(monkeypatch):
    """What reaches `serve`."""
    calls = []
    monkeypatch.setattr(serve_module, "serve", lambda options: calls.append(options) or 0)
    return calls


def test_options_arrive(served):
    words = ["serve", "--http-port", "9000", "--door", "unary", "--checkpoint", "/x", "--admin-key", "k"]
    result = CliRunner().invoke(cli.app, [*words, "--log-level", "verbose", "--", "--id=a", "--rate-limit=off"])
    assert result.exit_code == 0, result.output
    (options,) = served
    assert (options.http_port, options.door, options.checkpoint, options.admin_key) == (
        9000,
        Door.UNARY,
        "/x",
        "k",
    )
    assert options.log_level is LogLevel.VERBOSE
    assert (options.model_repositories, options.models) == ((), ())
    assert options.extra_flags == ("--id=a", "--rate-limit=off")


def test_repositories_and_models_can_be_several(served):
    words = ["serve", "--model-repository", "built-in", "--model-repository", "/m", "--model", "embed", "--model", "a"]
    CliRunner().invoke(cli.app, words)
    (options,) = served
    assert options.model_repositories == ("built-in", "/m")
    assert options.models == ("embed", "a")


def test_without_a_key_a_random_one(served):
    for _ in range(2):
        CliRunner().invoke(cli.app, ["serve"])
    assert len({options.admin_key for options in served}) == 2


def test_an_error_is_told_with_its_remedy(monkeypatch):
    def fail(options):
        raise LaunchError("no server", "install one")

    monkeypatch.setattr(serve_module, "serve", fail)
    result = CliRunner().invoke(cli.app, ["serve"])
    assert result.exit_code == 1
    assert result.stderr == "lazuli: no server\nto mend it: install one\n"


def test_a_bad_option_is_an_error_and_no_traceback(served):
    result = CliRunner().invoke(cli.app, ["serve", "--device", "tpu"])
    assert result.exit_code == 1
    assert "'tpu' is not auto" in result.stderr
    assert served == []


def test_a_missing_repository_is_named():
    result = CliRunner().invoke(cli.app, ["serve", "--model-repository", str(Path("/nowhere"))])
    assert result.exit_code == 1
    assert "/nowhere is not a folder" in result.stderr


def test_health_ends_with_1_where_there_is_no_server():
    ports = ["--http-port", "1", "--grpc-port", "2", "--metrics-port", "3"]
    result = CliRunner().invoke(cli.app, ["health", *ports])
    assert result.exit_code == 1
    assert result.output.startswith("FAIL  the server's metrics")


def test_ports_that_are_the_same_are_an_error(served):
    result = CliRunner().invoke(cli.app, ["serve", "--health-port", "8002"])
    assert result.exit_code == 1
    assert "must differ" in result.stderr
