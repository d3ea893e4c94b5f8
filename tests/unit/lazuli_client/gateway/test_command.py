"""The command line, up to where the server would start."""

import subprocess
import sys

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from lazuli_client.gateway import command, server
from lazuli_client.gateway.settings import ENVIRONMENT, GatewaySettings


@pytest.fixture
def run(monkeypatch):
    started = []
    monkeypatch.setattr(server, "serve", started.append)
    app = typer.Typer()
    command.register(app)

    def run(*arguments):
        result = CliRunner().invoke(app, list(arguments))
        return result.exit_code, result.output, started

    return run


def test_without_options_the_defaults_hold(run):
    assert run() == (0, "", [GatewaySettings()])


def test_every_option_arrives(run, tmp_path):
    (tmp_path / "keys").write_text("one-long-key\n")
    code, output, started = run(
        *("--replica", "a:1", "--replica", "b:2", "--model", "embed", "--alias", "x=embed", "--rate", "2.5"),
        *("--tokenizer", "all-MiniLM-L6-v2", "--api-keys", str(tmp_path / "keys"), "--max-body-mb", "2"),
        *("--timeout", "7", "--no-access-log"),
    )
    assert (code, output) == (0, "")
    assert started == [
        GatewaySettings(
            replicas=("a:1", "b:2"),
            models=("embed",),
            aliases={"x": "embed"},
            tokenizers={"embed": "all-MiniLM-L6-v2"},
            api_keys_file=str(tmp_path / "keys"),
            max_body_bytes=2 << 20,
            requests_per_s=2.5,
            timeout_s=7.0,
            access_log=False,
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", ""], "models: '', but it must be the name of a model"),
        (["--alias", "x"], "--alias: 'x', but NAME=VALUE is needed"),
        (["--alias", "x=nope"], "aliases: nope is not among the models"),
        (["--replica", "nowhere"], "nowhere"),
        (["--timeout", "0.001"], "timeout_s: 0.001"),
        (["--api-keys", "/nowhere"], "/nowhere cannot be read"),
        (["--tokenizer", "/nowhere"], "tokenizer: checkpoint"),
        (["--tls-cert", "x"], "tls_cert and tls_key"),
    ],
)
def test_what_is_wrong_is_one_line(run, arguments, words):
    code, output, started = run(*arguments)
    assert (code, started) == (2, [])
    assert words in output
    assert len(output.strip().splitlines()) == 1


def test_a_missing_package_is_named_with_its_remedy(run, monkeypatch):
    monkeypatch.setattr(command, "_NEEDED", ("json", "no_such_package"))
    code, output, _ = run()
    assert code == 2
    assert "no_such_package: not installed; `pip install 'lazuli[gateway]'`" in output


def test_a_worker_reads_what_the_command_was_told(monkeypatch):
    from lazuli_client.gateway import app

    settings = GatewaySettings(replicas=("a:1",), port=1234)
    monkeypatch.setenv(ENVIRONMENT, msgspec.json.encode(settings).decode())
    made = []
    monkeypatch.setattr(app, "create", made.append)
    app.from_environment()
    assert made == [settings]


def test_without_a_tokenizer_nothing_of_the_engine_is_imported():
    code = (
        "import sys; sys.modules['lazuli'] = None; sys.modules['tokenizers'] = None\n"
        "from lazuli_client.gateway.app import create\n"
        "from lazuli_client.gateway.settings import GatewaySettings\n"
        "create(GatewaySettings())\n"
        "try: create(GatewaySettings(tokenizers={'embed': 'x'}))\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "not installed; `pip install 'lazuli[engine]'`" in done.stdout
