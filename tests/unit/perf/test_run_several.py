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
