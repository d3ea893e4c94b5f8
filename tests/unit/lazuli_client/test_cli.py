import json
import re
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from lazuli_client import ConnectionFailedError, LazuliClient, cli, output
from lazuli_client.__main__ import app
from lazuli_client.embeddings import DENSE_OUTPUTS
from lazuli_client.errors import from_grpc_status


@pytest.fixture
def transport(fake):
    return fake.Transport()


@pytest.fixture
def run(transport, monkeypatch, tmp_path):
    """Runs a command line in `tmp_path` against the fake; returns its result."""
    opened = []

    def open_client(url, protocol, *, model, timeout_s, retries, batch_size, in_flight, workload=None, tls=None):
        seen = {"protocol": protocol.value, "batch_size": batch_size, "in_flight": in_flight, "workload": workload}
        opened.append(SimpleNamespace(url=url, **seen))
        return LazuliClient(
            model=model,
            transport=transport,
            retries=0,
            rows_per_request=batch_size,
            max_in_flight=in_flight,
            timeout_s=timeout_s,
        )

    monkeypatch.setattr(cli, "open_client", open_client)
    monkeypatch.chdir(tmp_path)

    def run(*args, code=0):
        result = CliRunner().invoke(app, [str(arg) for arg in args])
        assert result.exit_code == code, result.output
        if code in (1, 2):
            assert "Traceback" not in result.output
        return result

    run.opened = opened
    return run


def error_of(result):
    """The one line of the error."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def test_embed_and_its_summary(run, tmp_path):
    (tmp_path / "in.txt").write_text("one two\n\n" + "word " * 99 + "\n")
    result = run("embed", "in.txt", "-o", "out.npy", "--batch-size", 2, "--in-flight", 1, "--url", "h:1")
    assert re.fullmatch(r"out\.npy: 3 texts, 52 tokens, 1 truncated, [\d.]+ s, [\d,]+ tokens/s\n", result.stdout)
    assert np.load(tmp_path / "out.npy").shape == (3, 4)
    assert run.opened == [SimpleNamespace(url="h:1", protocol="grpc", batch_size=2, in_flight=1, workload="bulk")]


def test_all_options_reach_the_server(run, transport, tmp_path):
    (tmp_path / "in.csv").write_text("id,body\n7,a\n")
    run(
        *("embed", "in.csv", "-o", "out.jsonl", "--protocol", "http", "--column", "body", "--keep", "id"),
        *("--prompt-name", "query", "--truncate", "start", "--dimensions", 2, "--no-normalize"),
    )
    assert transport.requests[1].parameters == {
        "prompt_name": "query",
        "truncate": "start",
        "dimensions": 2,
        "normalize": False,
    }
    record = json.loads((tmp_path / "out.jsonl").read_text())
    assert (record["body"], record["id"], len(record["embedding"])) == ("a", "7", 2)
    assert run.opened[0].protocol == "http"
    run("embed", "in.csv", "-o", "out.npy", "--column", "body", "--instruction", "find", "--normalize")
    assert transport.requests[-1].parameters == {"instruction": "find", "truncate": "end", "normalize": True}
    run("embed", "in.csv", "-o", "out16.npy", "--column", "body", "--output", "float16", "--force-dimensions")
    assert transport.requests[-1].parameters == {"truncate": "end", "output": "float16", "force_dimensions": True}
    run("embed", "in.csv", "-o", "out.parquet", "--column", "body", "--input-type", "document")
    assert transport.requests[-1].parameters == {"input_type": "document", "truncate": "end"}


def test_the_model_is_chosen_and_a_job_does_not_go_on_with_another(run, transport, tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\n")
    run("search", "in.txt", "q", "--model", "docs")
    assert {request.model for request in transport.requests} == {"docs"}

    def gone(request):
        if request.rows[0] > 0:
            raise ConnectionFailedError("gone")

    transport.hook = gone
    command = ("embed", "in.txt", "-o", "out.npy", "--batch-size", 1, "--in-flight", 1)
    run(*command, "--model", "docs", code=1)
    transport.hook = lambda request: None
    assert "differs: model was 'docs', is 'embed'" in error_of(run(*command, code=2))
    run(*command, "--model", "docs")


def test_stdin(run, tmp_path, monkeypatch):
    result = CliRunner().invoke(app, ["embed", "-", "-o", "out.npy"], input=b"a\nb")
    assert result.exit_code == 0, result.output
    assert np.load(tmp_path / "out.npy").shape == (2, 4)


def test_a_job_from_stdin_is_not_resumed(run, transport, tmp_path):
    def gone(request):
        if request.rows[0] > 0:
            raise ConnectionFailedError("gone")

    transport.hook = gone
    command = ["embed", "-", "-o", "out.npy", "--batch-size", "1", "--in-flight", "1"]
    assert CliRunner().invoke(app, command, input=b"a\nb").exit_code == 1
    transport.hook = lambda request: None
    result = CliRunner().invoke(app, command, input=b"a\nb")
    assert result.exit_code == 2
    assert "standard input cannot be read again" in error_of(result)
    assert CliRunner().invoke(app, [*command, "--no-resume"], input=b"c\nd").exit_code == 0


def test_interrupted_and_resumed(run, transport, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("".join(f"text {row}\n" for row in range(9)))
    command = ("embed", "in.txt", "-o", "out.npy", "--batch-size", 2, "--in-flight", 1)
    run(*command[:3], "whole.npy", *command[4:])
    calls = []

    def interrupt(*args, **kwargs):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return make(*args, **kwargs)

    make = cli.jobs.to_table
    with monkeypatch.context() as patch:
        patch.setattr(cli.jobs, "to_table", interrupt)
        assert "the same command goes on" in error_of(run(*command, code=130))
    assert not (tmp_path / "out.npy").exists()
    assert "differs: truncate was 'end', is 'none'" in error_of(run(*command, "--truncate", "none", code=2))
    assert "9 texts (4 of them by an earlier run)" in run(*command).stdout
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert "--overwrite" in error_of(run(*command, code=2))
    run(*command, "--overwrite")


@pytest.mark.parametrize(
    ("args", "code", "match"),
    [
        (("embed", "missing.txt", "-o", "o.npy"), 2, "missing.txt: no such file"),
        (("embed", "in.txt", "-o", "o.csv"), 2, "cannot write .csv"),
        (("embed", "in.txt", "-o", "nowhere/o.npy"), 2, "No such file or directory"),
        (
            ("embed", "in.txt", "-o", "o.npy", "--truncate", "none"),
            2,
            r"in\.txt, line 2: text\[1\]: 99 tokens",
        ),
        (
            ("embed", "in.txt", "-o", "o.npy", "--dimensions", "0"),
            2,
            "dimensions: must be a positive integer",
        ),
        (("embed", "in.txt", "-o", "o.npy", "--timeout", "0.01"), 2, "timeout_s: 0.01, but at least 0.1"),
        (("embed", "in.txt", "-o", "o.npy", "--timeout", "inf"), 2, "timeout_s: inf, but it must be"),
        (("embed", "in.txt", "-o", "o.npy", "--instruction", "a\0b"), 2, "instruction: NUL at character 1"),
        (("embed", "blank.jsonl", "-o", "o.npy"), 2, r"blank\.jsonl, line 2: blank"),
        (("embed", "twice.csv", "-o", "o.npy"), 2, r"twice\.csv: 2 columns are named 'text'"),
        (("embed", "bad.parquet", "-o", "o.npy"), 2, r"bad\.parquet: not Parquet"),
        (("search", "bad.npy", "q"), 2, r"bad\.npy: not a \.npy file"),
        (("embed", "in.csv", "-o", "o.npy"), 2, "no column 'text'; there are: id, body"),
        (("embed", "bad.txt", "-o", "o.npy"), 2, r"bad\.txt, line 2: not valid UTF-8"),
        (("embed", "empty.txt", "-o", "o.npy"), 2, "there is no text in it"),
        (("search", "empty.txt", "q"), 2, "there is no text in it"),
        (("search", "missing.txt", "q"), 2, "missing.txt"),
        (("search", "in.docx", "q"), 2, "cannot read .docx"),
    ],
)
def test_errors_are_one_line(run, tmp_path, args, code, match):
    (tmp_path / "in.txt").write_text("a\n" + "word " * 99)
    (tmp_path / "in.csv").write_text("id,body\n1,a\n")
    (tmp_path / "bad.txt").write_bytes(b"a\n\xff\n")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.jsonl").write_text('{"text": "a"}\n\n{"text": "b"}\n')
    (tmp_path / "twice.csv").write_text("text,text\na,b\n")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    (tmp_path / "bad.npy").write_bytes(b"no numpy")
    assert re.search(match, error_of(run(*args, code=code)))
    assert not (tmp_path / "o.npy").exists()


def test_a_missing_server_is_one_line(run, transport, tmp_path):
    def gone(request):
        raise ConnectionFailedError("failed to connect\nto all addresses")

    transport.hook = gone
    (tmp_path / "in.txt").write_text("a\n")
    for args in (("embed", "in.txt", "-o", "o.npy"), ("search", "in.txt", "q")):
        assert "failed to connect to all addresses; is the server running?" in error_of(run(*args, code=1))
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_server_without_this_door_is_hinted_at(run, transport, tmp_path):
    def missing(request):
        raise from_grpc_status("NOT_FOUND", f"Request for unknown model: {request.model!r} is not found")

    transport.hook = missing
    (tmp_path / "in.txt").write_text("a\n")
    for args in (("embed", "in.txt", "-o", "o.npy"), ("search", "in.txt", "q")):
        error = error_of(run(*args, code=1))
        assert "'embed' is not found" in error
        assert "lazuli serve --door both" in error
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_search(run, tmp_path):
    (tmp_path / "in.txt").write_text("first\n[red]second[/red]\nthird\n")
    lines = run("search", "in.txt", "[red]second[/red]", "-k", 2).stdout.splitlines()
    assert lines[0].split() == ["score", "row", "text"]
    assert lines[1].split() == ["1.000", "1", "[red]second[/red]"]
    assert len(lines) == 3


def test_the_commands_can_be_put_on_another_application():
    other = typer.Typer()
    cli.register(other)
    commands = ["embed", "search", "rerank", "classify", "gateway"]
    assert [command.callback.__name__ for command in other.registered_commands] == commands


def test_help_says_that_texts_are_cut(run):
    text = " ".join(run("embed", "--help").stdout.split())
    assert "cut at the end unless" in text


def test_the_client_of_a_command():
    client = cli.open_client(
        "h:1", cli.ProtocolName.GRPC, model="docs", timeout_s=5, retries=1, batch_size=3, in_flight=2
    )
    with client:
        assert client._settings.address == "h:1"
        assert client._settings.model == "docs"
        assert (client._settings.rows_per_request, client._settings.max_in_flight) == (3, 2)


def test_the_client_of_a_command_outlasts_a_restart(run, tmp_path, monkeypatch):
    seen = []
    make = cli.open_client
    monkeypatch.setattr(cli, "open_client", lambda *args, **kw: seen.append(kw["retries"]) or make(*args, **kw))
    (tmp_path / "in.txt").write_text("a\n")
    run("embed", "in.txt", "-o", "o.npy")
    run("search", "in.txt", "q")
    assert seen == [cli.CLI_RETRIES] * 2


@pytest.mark.parametrize("encoding", ["float16", "int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("kind", ["npy", "parquet", "jsonl"])
def test_vectors_keep_their_type_on_the_way_to_the_file(run, fake, tmp_path, encoding, kind):
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    run("embed", "in.txt", "-o", f"out.{kind}", "--output", encoding, "--batch-size", 2)
    dtype = DENSE_OUTPUTS[f"embedding_{encoding}"]
    scale = 1 if encoding == "float16" else 100
    expected = (np.stack([fake.vector(text) for text in "abc"]) * scale).astype(dtype)
    if kind == "npy":
        found = np.load(tmp_path / "out.npy")
        assert found.dtype == dtype
    elif kind == "parquet":
        found = output.vectors(pq.read_table(tmp_path / "out.parquet")["embedding"])
        assert found.dtype == dtype
    else:
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        found = np.array([json.loads(line)["embedding"] for line in lines])
    assert np.array_equal(found, expected)
