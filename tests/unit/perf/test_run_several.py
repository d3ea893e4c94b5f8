"""Several suites against targets that are opened once."""

import json

import pytest

from run_several import main

COMMON = ["--turns", "1", "--warm-up", "1", "--processes", "1", "--machine", "test", "--len", "8"]


@pytest.mark.parametrize("least_cosine", ["0.999", "2"])
def test_a_suite_that_fails_takes_no_other_with_it(tmp_path, capsys, server, other_server, least_cosine):
    targets = ["--target", f"vllm={server.url}", "--target", f"infinity={other_server.url}"]
    suites = ["latency --repeats 2", f"scoring --batch 2 --repeats 1 --min-cosine {least_cosine}", "bulk --repeats 1"]
    words = [word for suite in suites for word in ("--suite", suite)]
    status = main([*words, "--prefix", "both", "--", *COMMON, "--results", str(tmp_path), *targets])
    written = {file.stem for file in (tmp_path / "test").iterdir()}
    output = capsys.readouterr()
    if least_cosine == "2":
        assert status == 1
        assert written == {"both_latency", "both_bulk"}
        assert "3 suites, failed: scoring" in output.out
        assert "DisagreementError" in output.err
    else:
        assert status == 0
        assert written == {"both_latency", "both_scoring", "both_bulk"}
    lines = [json.loads(line) for line in (tmp_path / "test" / "both_bulk.jsonl").read_text().splitlines()]
    assert {line["system"].split()[0] for line in lines} == {"vllm", "infinity"}


def test_a_server_that_does_not_answer_is_told_in_one_line(tmp_path, capsys):
    target = ["--target", "lazuli-grpc=127.0.0.1:1"]
    status = main(["--suite", "latency", "--prefix", "both", "--", *COMMON, "--results", str(tmp_path), *target])
    assert status == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("run_several.py: target lazuli-grpc at 127.0.0.1:1 cannot be used: ")


def test_two_suites_of_one_file_are_refused(tmp_path, capsys, server):
    common = [*COMMON, "--results", str(tmp_path), "--target", f"vllm={server.url}"]
    suites = ["--suite", "bulk --repeats 1", "--suite", "bulk --repeats 1 --batch 2"]
    assert main([*suites, "--prefix", "both", "--", *common]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("run_several.py: two suites would write both_bulk.jsonl: give one a --name of its own")
    assert server.bodies == []
    suites[-1] += " --name more"
    assert main([*suites, "--prefix", "both", "--", *common]) == 0
    assert {file.stem for file in (tmp_path / "test").iterdir()} == {"both_bulk", "more"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--suite", "", "--prefix", "a"], "argument --suite: it names no suite"),
        (["--suite", "bulk 'x", "--prefix", "a"], 'argument --suite: "bulk \'x": No closing quotation'),
        (
            ["--suite", "cold-start --starts 1", "--prefix", "a"],
            "argument --suite: cold-start opens its targets itself",
        ),
        (["--suite", "bulk", "--prefix", "../a"], "argument --prefix: '../a' is not the name of a file or folder"),
        (["--suite", "bulk", "--prefix", ""], "argument --prefix: '' is not the name of a file or folder"),
    ],
)
def test_options_that_mean_nothing_are_refused(capsys, server, words, reason):
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--", *COMMON, "--target", f"vllm={server.url}"])
    assert reason in capsys.readouterr().err
    assert server.bodies == []


def test_a_checkpoint_that_is_not_there_is_told_in_one_line(capsys, server):
    common = [*COMMON, "--target", f"vllm={server.url}", "--checkpoint", "/nope"]
    assert main(["--suite", "latency", "--prefix", "both", "--", *common]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("run_several.py: checkpoint: '/nope' is neither a folder nor")
