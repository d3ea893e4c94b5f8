import json
from dataclasses import fields

import pytest
import typer
from typer.testing import CliRunner

from lazuli_client import ConnectionFailedError, LazuliClient, task_cli
from lazuli_client.__main__ import app
from lazuli_client.task_options import ClassifyOptions, RerankOptions

LINES = ["blue", "nothing [red]", "green red", "red green blue"]


@pytest.fixture
def run(fake, monkeypatch, tmp_path):
    """Run a command in a folder with `lines.txt`, on a fake transport."""
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in LINES))
    monkeypatch.chdir(tmp_path)

    def run(*words, code=0, hook=lambda request: None):
        def open_client(url, protocol, *, model, timeout_s, retries, batch_size, in_flight, tls=None):
            transport = run.transport = fake.Transport(hook)
            return LazuliClient(transport=transport, model=model, rows_per_request=batch_size, retries=0)

        monkeypatch.setattr(task_cli, "open_client", open_client)
        result = CliRunner().invoke(app, list(map(str, words)))
        assert result.exit_code == code, result.output
        return result

    return run


def records(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_rerank_prints_the_best_lines(run):
    lines = run("rerank", "red blue green", "lines.txt", "-k", 2).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["score", "row", "text"],
        ["3.000", "3", "red", "green", "blue"],
        ["2.000", "2", "green", "red"],
    ]


def test_rerank_over_several_batches(run, monkeypatch):
    monkeypatch.setattr(task_cli, "_BATCH_ROWS", 2)
    found = records(
        run("rerank", "red blue green", "lines.txt", "--json", "--instruction", "colours", "--truncate", "none")
    )
    assert [record["row"] for record in found] == [3, 2, 0, 1]
    assert found[0] == {"row": 3, "score": 3.0, "text": "red green blue"}
    assert run.transport.requests[-1].parameters == {"instruction": "colours", "truncate": "none"}


def test_the_options_of_the_wire(run):
    run("rerank", "red", "lines.txt", "--method", "hybrid", "--weights", "1,0.3,1", "--activation", "sigmoid")
    sent = run.transport.requests[-1].parameters
    assert sent == {"truncate": "end", "method": "hybrid", "weights": "1,0.3,1", "activation": "sigmoid"}
    run("classify", "lines.txt", "--truncate", "start", "--input-type", "query")
    assert run.transport.requests[-1].parameters == {"truncate": "start", "input_type": "query", "labels": True}
    run("classify", "lines.txt", "--instruction", "as a critic: ")
    assert run.transport.requests[-1].parameters["instruction"] == "as a critic: "


@pytest.mark.parametrize("weights", ["a,b", "", "1,,2"])
def test_weights_that_are_none(run, weights):
    stderr = run("rerank", "red", "lines.txt", "--weights", weights, code=2).stderr
    assert stderr.startswith(f"error: weights: must be numbers with commas between, got {weights!r}")


@pytest.mark.parametrize(("command", "options"), [("rerank", RerankOptions), ("classify", ClassifyOptions)])
def test_every_option_of_the_wire_is_one_of_the_command(command, options):
    declared = {parameter.name for parameter in typer.main.get_command(app).commands[command].params}
    assert declared >= {field.name for field in fields(options)}


def test_rerank_names_the_row_of_the_file(run, monkeypatch, tmp_path):
    monkeypatch.setattr(task_cli, "_BATCH_ROWS", 2)
    (tmp_path / "texts.txt").write_text("a\nb\nc\nbad\n")
    assert "document[3]: no token is left" in run("rerank", "q", "texts.txt", code=2).stderr


def test_classify_prints_a_line_each(run):
    lines = run("classify", "lines.txt").stdout.splitlines()
    assert lines[:2] == ["long\t0.800\tblue", "long\t0.800\tnothing [red]"]
    assert len(lines) == len(LINES)


def test_classify_in_json_over_several_batches(run, monkeypatch):
    monkeypatch.setattr(task_cli, "_BATCH_ROWS", 3)
    found = records(run("classify", "lines.txt", "--json", "--model", "moods"))
    assert [(record["row"], record["text"]) for record in found] == list(enumerate(LINES))
    assert found[0]["label"] == "long"
    assert found[0]["probabilities"] == pytest.approx({"short": 0.1, "long": 0.8, "naïve": 0.1})
    assert run.transport.requests[-1].parameters["truncate"] == "none"


@pytest.mark.parametrize("words", [("rerank", "q"), ("classify",)])
def test_errors_are_one_line(run, words, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert run(*words, "nothing.txt", code=2).stderr == "error: nothing.txt: no such file\n"

    def fail(request):
        raise ConnectionFailedError("connection to h:1 failed")

    stderr = run(*words, "lines.txt", code=1, hook=fail).stderr
    assert stderr == "error: connection to h:1 failed; is the server running? `lazuli serve` starts one\n"


def test_rerank_of_nothing_is_an_error(run, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert run("rerank", "q", "empty.txt", code=2).stderr == "error: empty.txt: there is no text in it\n"
    assert run("classify", "empty.txt").stdout == ""
