"""The command, on servers of no model and on the real engine, with the smallest of loads."""

import json
import socket

import pytest

from peers import json_server
from run import main

TINY = ["--turns", "2", "--warm-up", "1", "--processes", "1", "--machine", "test"]


@pytest.fixture
def run(tmp_path, capsys):
    def run(suite, *arguments):
        status = main([suite, *TINY, "--results", str(tmp_path), *arguments])
        file = tmp_path / "test" / f"{suite.replace('-', '_')}.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
        return status, lines, capsys.readouterr()

    return run


@pytest.fixture
def two(server, other_server):
    return ["--target", f"vllm={server.url}", "--target", f"infinity={other_server.url},label=the other"]


def column(lines, *keys):
    return [tuple(line.get(key) for key in keys) for line in lines]


def test_latency(run, two, server, other_server):
    status, lines, output = run("latency", *two, "--len", "8", "8-16", "512", "--repeats", "5")
    assert status == 0
    systems = ["vllm 0.22.0", "the other"]
    assert column(lines, "system", "len", "batch", "suite") == [
        (system, length, 1, "latency") for length in (8, "8-16") for system in systems
    ]
    assert all(len(line["samples_ms"]) == 6 for line in lines)  # in two equal turns
    assert "left out: 512 tokens, as the model reads 256" in output.out
    assert "agrees: the other, least cosine 1.0000000 to vllm 0.22.0 http auto" in output.out
    assert "warm-up: 1 requests of each client" in output.out
    assert lines[1]["extra"]["min_cosine"] == 1
    assert lines[0]["tokens"] == 8
    # The check, and for both sizes the warm-up, and in each of two turns one that is not timed and three that are.
    ours = [body for body in server.bodies if len(body["input"]) == 1]
    assert len(ours) == 2 * (1 + 2 * (1 + 3))


def test_turns_alternate(run, two, server, other_server):
    order = []
    server.RequestHandlerClass = recording(server, "a", order)
    other_server.RequestHandlerClass = recording(other_server, "b", order)
    run("latency", *two, "--len", "8", "--repeats", "2")
    # Warm-up of both; then one turn each, an untimed and a timed request; then the other first.
    assert "".join(order[-10:]) == "ab" + "aabb" + "bbaa"


def recording(server, name, order):
    class Recording(server.RequestHandlerClass):
        def do_POST(self):  # noqa: N802
            order.append(name)
            super().do_POST()

    return Recording


def test_scoring_and_bulk(run, two):
    _, lines, _ = run("scoring", *two, "--len", "8", "--batch", "3", "--repeats", "2")
    assert column(lines, "suite", "batch", "texts", "tokens") == [("scoring", 3, 3, 24)] * 2
    _, lines, _ = run("bulk", *two, "--len", "8", "--batch", "4", "--clients", "2", "--repeats", "2")
    assert column(lines, "suite", "batch", "concurrency") == [("throughput", 4, 2)] * 2
    assert all(len(line["samples_ms"]) == 4 and line["wall_s"] > 0 for line in lines)


def test_concurrency(run, two):
    _, lines, _ = run("concurrency", *two, "--len", "8", "--concurrency", "1", "3", "--seconds", "0.2")
    assert column(lines, "concurrency") == [(1,), (1,), (3,), (3,)]


def test_arrivals(run, two):
    load = ["--len", "8", "--clients", "2", "--under-way", "8", "--seconds", "0.4"]
    _, lines, _ = run("arrivals", *two, *load, "--load", "20")
    assert column(lines, "suite", "note") == [("capacity", None)] * 2 + [("arrivals", "20 % of its capacity")] * 2
    for capacity, arrivals in zip(lines[:2], lines[2:], strict=True):
        offered = arrivals["extra"]["offered_per_s"]
        assert offered == pytest.approx(0.2 * len(capacity["samples_ms"]) / capacity["wall_s"], abs=0.1)
    _, lines, _ = run("arrivals", *two, *load, "--rate", "30")
    assert column(lines, "suite", "note") == [("arrivals", "30 requests/s")] * 2


def test_mixed(run, two):
    load = ["--len", "16", "--batch", "2", "--clients", "1", "--query-rate", "60", "--seconds", "0.4"]
    _, lines, _ = run("mixed", *two, *load)
    notes = ["queries alone", "queries beside documents", "the documents"]
    assert column(lines, "note", "len") == list(zip(notes, ["8-32", "8-32", 16], strict=True)) * 2


def test_memory(run, server):
    import os

    target = ["--target", f"vllm={server.url}"]
    load = ["--len", "8", "--batch", "2", "--concurrency", "2", "--seconds", "0.2"]
    status, lines, _ = run("memory", *target, *load, "--pid", str(os.getpid()))
    assert status == 0
    assert column(lines, "note") == [("before the load",), ("after 0.1 s of load",), ("after 0.2 s of load",)]
    assert all(line["extra"]["rss_mib"] > 20 for line in lines)
    status, _, output = run("memory", *target, *load)
    assert status == 1
    assert "was not started here: name its first process with --pid" in output.err


def test_those_that_disagree_are_not_timed(run, two, other_server):
    other_server.shift = 3.0
    status, lines, output = run("latency", *two, "--len", "8")
    assert (status, lines) == (1, [])
    assert "the other and vllm 0.22.0 http auto disagree: cosine" in output.err


def test_one_that_cuts_texts_is_not_timed(run, server):
    server.lost = 1
    status, lines, output = run("latency", "--target", f"vllm={server.url}", "--len", "8")
    assert (status, lines) == (1, [])
    assert "vllm 0.22.0 http auto read 23 tokens where the checkpoint's tokenizer makes 24" in output.err


def test_ids_only_to_those_that_take_them(run, two, server):
    status, _, output = run("latency", *two, "--len", "8", "--send", "ids")
    assert status == 1
    assert "the other cannot be sent token ids" in output.err
    status, lines, _ = run("latency", *two[:2], "--len", "8", "--send", "ids", "--repeats", "2")
    assert status == 0
    assert len(lines) == 1
    assert all(len(ids) == 8 for body in server.bodies for ids in body["input"])


def test_two_targets_of_one_name_are_refused(run, server):
    target = ["--target", f"vllm={server.url}"]
    status, _, output = run("latency", *target, *target)
    assert status == 1
    assert "two targets are called 'vllm 0.22.0 http auto'; tell them apart with label=" in output.err


def line_about(run, target):
    """What is said, in one line, of a target that cannot be used; nothing is measured."""
    status, lines, output = run("latency", "--target", target, "--len", "8")
    assert (status, lines) == (1, [])
    (line,) = output.err.splitlines()
    return line


@pytest.mark.parametrize("kind", ["lazuli-grpc", "lazuli-http", "lazuli-stream", "vllm", "tei", "infinity", "openai"])
def test_a_server_that_does_not_answer_is_told_in_one_line(run, kind):
    with socket.socket() as bound:  # nobody listens there, and nobody else can
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        options = ",model=a" if kind == "openai" else ""
        line = line_about(run, f"{kind}={address}{options}")
    assert line.startswith(f"run.py: target {kind} at {address} cannot be used: ")
    assert "refused" in line


def test_a_server_that_is_another_is_told_in_one_line(run, server):
    line = line_about(run, f"vllm={server.url}/nowhere,label=ours")
    assert line.startswith(f"run.py: target ours at {server.url}/nowhere cannot be used: HTTP 404")


@pytest.mark.parametrize("kind", ["vllm", "tei", "infinity", "openai"])
def test_a_server_that_never_answers_is_told_in_one_line(run, monkeypatch, kind):
    monkeypatch.setattr(json_server, "CHEAP_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        options = ",model=x" if kind == "openai" else ""
        line = line_about(run, f"{kind}={address}{options}")
    assert line.startswith(f"run.py: target {kind} at {address} cannot be used: ")
    assert line.endswith(": no answer within 0.2 s")


@pytest.mark.parametrize("speech", [b"<html>hello</html>", b"", b"{}", b"[]", b"null", b'{"data": []}', b"\xff\xfe"])
def test_a_server_that_answers_something_else_is_told_in_one_line(run, server, speech):
    server.speech = speech
    line = line_about(run, f"openai={server.url}/v1,model=x")
    assert line.startswith(f"run.py: target openai at {server.url}/v1 cannot be used: nothing answers as openai does: ")


def test_a_server_that_has_no_vectors_is_told_in_one_line(run, server):
    server.speech = b"no vectors"
    status, lines, output = run("latency", "--target", f"vllm={server.url},label=ours", "--len", "8")
    assert (status, lines) == (1, [])
    (line,) = output.err.splitlines()
    assert line.startswith("run.py: target ours cannot be used: the load failed: JSONDecodeError")


def test_a_checkpoint_that_is_not_there_is_told_in_one_line(run, server):
    status, lines, output = run("latency", "--target", f"vllm={server.url}", "--checkpoint", "/nope")
    assert (status, lines) == (1, [])
    (line,) = output.err.splitlines()
    assert line.startswith("run.py: checkpoint: '/nope' is neither a folder nor")


@pytest.mark.parametrize("option", ["--machine", "--name"])
@pytest.mark.parametrize("name", ["", " ", ".", "..", "../x", "a/b", "/tmp/x"])
def test_names_stay_in_their_folder(run, capsys, server, option, name):
    with pytest.raises(SystemExit, match="2"):
        run("latency", "--target", f"vllm={server.url}", option, name)
    assert f"argument {option}: {name!r} is not the name of a file or folder" in capsys.readouterr().err
    assert server.bodies == []


def test_only_what_is_started_here_starts_cold(run, server):
    status, _, output = run("cold-start", "--target", f"vllm={server.url}")
    assert status == 1
    assert "is running already: add command= to have it started" in output.err


def test_real_texts(run, server, tmp_path):
    file = tmp_path / "texts"
    file.write_text("two words\n\nwhat is the capital of france\n")
    arguments = ["--target", f"vllm={server.url}", "--texts", str(file), "--len", "4-12", "--repeats", "6"]
    status, lines, _ = run("latency", *arguments)
    assert status == 0
    assert {body["input"][0] for body in server.bodies} >= {"two words", "what is the capital of france"}
    assert 4 <= lines[0]["tokens"] <= 8


def test_the_real_engine_agrees_with_sentence_transformers(run):
    arguments = ["--target", "lazuli-engine", "--reference", "sentence-transformers", "--len", "8", "32"]
    status, lines, output = run("latency", *arguments, "--repeats", "2")
    assert status == 0
    assert column(lines, "level", "len") == [("engine", 8), ("engine", 32)]
    assert all(line["extra"]["min_cosine"] > 0.9999 for line in lines)
    assert "to sentence-transformers" in output.out


def test_the_real_engine_starts_cold(run):
    arguments = ["--target", "lazuli-engine", "--starts", "1", "--requests", "3", "--len", "8-16"]
    status, lines, _ = run("cold-start", *arguments)
    assert status == 0
    assert column(lines, "suite", "note") == [
        ("start", None),
        ("first", "the first request"),
        ("first", "the first 3 requests"),
    ]
    assert lines[0]["samples_ms"][0] > lines[1]["samples_ms"][0] == lines[2]["samples_ms"][0]
