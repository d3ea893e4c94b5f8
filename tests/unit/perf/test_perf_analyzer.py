"""What perf_analyzer is asked for, and what is read out of its file."""

import json
import stat

import pytest

import run_perf_analyzer
from analyzer.job import AnalyzerResult, Concurrency, Job, Rate, arguments_of, data_of, read_export, run

ROWS = [{"text": "one"}, {"text": "zwei"}]


def job(protocol="grpc", load=Concurrency(4)):  # noqa: B008 - frozen
    return Job("embed", protocol, "127.0.0.1:1", ROWS, 2, load, 1.5)


def follows(arguments, name):
    return arguments[arguments.index(name) + 1]


def test_a_closed_loop():
    arguments = arguments_of(job())
    assert follows(arguments, "--concurrency-range") == "4"
    assert follows(arguments, "-i") == "grpc"
    assert follows(arguments, "-b") == "2"
    assert follows(arguments, "--measurement-interval") == "1500"
    assert not {"--streaming", "--async"} & set(arguments)


def test_an_open_loop():
    arguments = arguments_of(job("http", Rate(12.5, "poisson")))
    assert follows(arguments, "--request-rate-range") == "12.5"
    assert follows(arguments, "--request-distribution") == "poisson"
    assert "--concurrency-range" not in arguments
    assert arguments.count("--async") == arguments_of(job("stream", Rate(1, "poisson"))).count("--async") == 1


def test_a_stream_goes_over_grpc():
    arguments = arguments_of(job("stream"))
    assert follows(arguments, "-i") == "grpc"
    assert "--streaming" in arguments
    assert "--async" in arguments  # it has no other streams


def test_rows_are_its_data():
    assert data_of(job()) == {"data": [{"text": ["one"]}, {"text": ["zwei"]}]}


def request(start_ms, *ends_ms):
    times = [int(end * 1e6) for end in ends_ms]
    return {"timestamp": int(start_ms * 1e6), "response_timestamps": times, "response_outputs": [{"embedding": "\x00"}]}


def test_a_request_lasts_until_the_last_part_of_its_answer():
    requests = [request(10, 15), request(20, 22, 29), request(30)]
    result = read_export({"experiments": [{"requests": requests}]})
    assert result.samples_ms == [5.0, 9.0]
    assert result.wall_s == pytest.approx(0.019)


def test_no_answer_is_an_error():
    with pytest.raises(RuntimeError, match="no answer"):
        read_export({"experiments": [{"requests": [request(1)]}]})


@pytest.fixture
def analyzer(tmp_path, monkeypatch):
    """Writes a script in the place of the binary."""

    def write(body):
        binary = tmp_path / "perf_analyzer"
        binary.write_text(f'#!/bin/sh\nwhile [ "$1" != --profile-export-file ]; do shift; done\n{body}\n')
        binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr("analyzer.job.find_perf_analyzer", lambda: (binary, {}))

    return write


def test_its_file_may_hold_any_bytes(analyzer):
    export = json.dumps({"experiments": [{"requests": [request(1, 3)]}]}).replace("\\u0000", r"\351\t")
    analyzer(f"printf '{export}' > $2")
    assert run(job()).samples_ms == [2.0]


def test_what_it_says_when_it_fails_is_told(analyzer):
    analyzer("echo no such model >&2; exit 99")
    with pytest.raises(RuntimeError, match="no such model"):
        run(job())


def test_without_a_load_there_is_a_sweep():
    assert run_perf_analyzer.parse(["--machine", "m"]).concurrency == [1, 4, 16]
    assert run_perf_analyzer.parse(["--machine", "m", "--rate", "5"]).concurrency == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "0"], "must be above 0"),
        (["--grpc", "a:1"], "http needs an address"),
        (["--http", "a:1", "--protocols", "stream"], "grpc needs an address"),
        (["--concurrency", "0"], "at least 1"),
    ],
)
def test_useless_options_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        run_perf_analyzer.parse(["--machine", "m", *arguments])
    assert message in capsys.readouterr().err


def test_a_window_without_an_answer_is_told(analyzer):
    analyzer("echo Failed to obtain stable measurement.; exit 99")
    with pytest.raises(RuntimeError, match=r"within a window of 1\.5 s"):
        run(job())


def test_a_load_that_fails_does_not_take_the_others_along(tmp_path, monkeypatch, capsys):
    def measured(work):
        if work.load == Concurrency(2):
            raise RuntimeError("not stable")
        return AnalyzerResult([1.0, 3.0], 0.002)

    monkeypatch.setattr(run_perf_analyzer, "run", measured)
    arguments = ["--machine", "m", "--results", str(tmp_path), "--grpc", "a:1", "--http", "a:2"]
    status = run_perf_analyzer.main([*arguments, "--protocols", "grpc", "--concurrency", "1", "2", "4"])
    lines = [json.loads(line) for line in (tmp_path / "m" / "perf_analyzer.jsonl").read_text().splitlines()]
    assert status == 1
    assert "not stable" in capsys.readouterr().err
    assert [line["concurrency"] for line in lines] == [1, 4]
    # Little's law: so many requests are always under way.
    assert [line["emb_per_s"] * 2e-3 for line in lines] == [pytest.approx(1), pytest.approx(4)]
    assert all(line["p50_ms"] <= line["p90_ms"] <= line["p99_ms"] <= line["max_ms"] for line in lines)
