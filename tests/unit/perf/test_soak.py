"""What a soak finds: growth, wrong answers, what is lost; the server is a small one in this process."""

import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from multiprocessing import Pipe, RawArray

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

import soak as command
from reporting.measurement import RESULTS
from reporting.sections import section
from soaking.clients import ANSWERED, COLUMNS, EXACT, SENT, Worker
from soaking.growth import PER, WHOLE, Footprint, Held, slope
from soaking.kinds import KINDS, Kind
from soaking.pool import Pool, keep_apart
from soaking.readings import can_be_read, read

VECTORS = np.eye(4, 3, dtype=np.float32) + 1
IDS = [np.array([101, number, 102], np.int32) for number in range(4)]


def make_pool(tolerance=1e-3):
    return Pool(["a", "b", "c", "d"], IDS, VECTORS, None, tolerance)


def held(values, name="rss_mib", step=1000):
    one = Held()
    for place, value in enumerate(values):
        one.add(step * place, **{name: value})
    return one


def test_a_slope_is_that_of_most_pairs():
    assert slope([0, 1, 2, 3, 4], [0.0, 2.0, 4.0, 99.0, 8.0]) == 2.0
    assert slope([5, 5], [1.0, 9.0]) == 0.0


@pytest.mark.parametrize(
    ("values", "grows"),
    [
        (np.full(100, 400.0), False),
        (np.linspace(400, 500, 100), True),
        # What it takes until everything is warm does not count, nor does a peak.
        ([*np.linspace(300, 400, 25), *np.full(75, 400.0)], False),
        ([*np.full(60, 400.0), 900.0, *np.full(39, 400.0)], False),
        # An allocator takes more in steps, and then no more.
        ([*np.full(45, 400.0), *np.full(25, 440.0), *np.linspace(480, 480.1, 30)], False),
        # As steep, but too short to be told from noise.
        (np.linspace(400, 404, 100), False),
        (np.linspace(500, 400, 100), False),
    ],
)
def test_growth(values, grows):
    assert held(values).grows("rss_mib") is grows


def test_a_short_run_does_not_tell():
    values = [float(place) for place in range(100)]
    assert held(values, step=1000).can_be_judged()
    assert not held(values, step=100).can_be_judged()
    assert not held(values, step=100).grows("rss_mib")


def test_growth_is_in_a_hundred_thousand_requests():
    assert held(np.arange(100.0)).growth("rss_mib") == pytest.approx(PER / 1000)


def test_files_that_are_left_open_one_by_one_are_seen():
    assert held([10 + place // 10 for place in range(200)], "files").grows("files")


def test_readings_of_this_process():
    found = {}
    read(os.getpid(), 0, found)
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(open(os.devnull))
        read(os.getpid(), 10, found)
    whole = found.pop(WHOLE)
    assert whole.requests == [0, 10]
    assert any(os.getpid() in one.pids for one in found.values())  # others of its name may run with it
    assert whole.values["rss_mib"][0] > 10
    assert whole.values["threads"][0] >= 1
    assert whole.values["files"][1] > whole.values["files"][0] + 20


class TestPool:
    def test_what_is_right_is_told_from_what_is_near(self):
        rows = np.array([2, 0])
        assert make_pool().compare(KINDS[0], rows, {"embedding": VECTORS[rows]})
        assert not make_pool().compare(KINDS[0], rows, {"embedding": VECTORS[rows] * np.float32(1.0001)})

    @pytest.mark.parametrize(
        "wrong",
        [
            VECTORS[[0, 2]],  # those of each other
            VECTORS[[2]],  # one is lost
            VECTORS[[2, 2, 0]],  # one came twice
            VECTORS[[2, 0]] * np.float32(1.01),
            VECTORS[[2, 0]] * np.float32(np.nan),
        ],
    )
    def test_what_is_wrong_is_refused(self, wrong):
        with pytest.raises(ValueError, match="embedding"):
            make_pool().compare(KINDS[0], np.array([2, 0]), {"embedding": wrong})

    def test_float16_may_be_as_far_as_it_has_to(self):
        kind = next(kind for kind in KINDS if kind.output == "embedding_float16")
        values = {kind.output: (VECTORS[:1] / np.float32(3)).astype(np.float16)}
        pool = Pool(["a"], IDS[:1], VECTORS[:1] / np.float32(3), None, 0.0)
        assert pool.compare(kind, np.array([0]), values)
        assert not pool.compare(kind, np.array([0]), {kind.output: np.nextafter(values[kind.output], np.float16(9))})

    def test_texts_that_could_be_taken_for_each_other_are_left_out(self):
        assert keep_apart(np.array([[1.0, 0], [1.0, 1e-5], [0, 1.0]]), 1e-3) == [0, 2]


class Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers each text with its vector; of some requests it makes a mess."""

    def __init__(self, spoil):
        self.spoil = spoil
        self.asked = 0

    def ModelInfer(self, request, context):  # noqa: N802
        self.asked += 1
        texts = [part[4:].decode() for part in split(request.raw_input_contents[0])]
        if any(len(text) > 100 for text in texts):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"text[{len(texts) - 1}]: too many tokens")
        values = np.stack([VECTORS["abcd".index(text)] for text in texts])
        if self.spoil is not None and self.asked > 20:
            values = self.spoil(values)
        answer = service_pb2.ModelInferResponse()
        answer.outputs.add(name="embedding", datatype="FP32", shape=values.shape)
        answer.raw_output_contents.append(values.tobytes())
        return answer


def split(data):
    while data:
        size = 4 + int.from_bytes(data[:4], "little")
        yield data[:size]
        data = data[size:]


def soak(spoil, enough):
    """A worker of two kinds against such a server, until the counts are enough."""
    kinds = (Kind("texts", "grpc", "embed", 3), Kind("mistakes", "grpc", "embed", 2, "mistake"))
    counts, (ours, theirs) = RawArray("q", len(kinds) * COLUMNS), Pipe()
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Servicer(spoil), server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        worker = Worker({"grpc": address}, kinds, make_pool(), counts, 0)
        thread = threading.Thread(target=worker.run, args=[theirs])
        thread.start()
        table = np.frombuffer(counts, np.int64).reshape(len(kinds), COLUMNS)
        while not enough(table, worker):
            assert thread.is_alive()
        ours.send("end")
        samples, errors = ours.recv()
        thread.join()
        server.stop(None).wait()
    return table, samples, errors


def test_right_answers_and_refusals_are_counted():
    table, samples, errors = soak(None, lambda table, _: (table[:, ANSWERED] > 30).all())
    assert errors == []
    assert (table[:, SENT] == table[:, ANSWERED]).all()
    assert (table[:, EXACT] == table[:, ANSWERED]).all()
    assert [len(each) for each in samples] == table[:, ANSWERED].tolist()


def test_a_wrong_answer_is_an_error_and_the_other_client_goes_on():
    table, _, errors = soak(
        lambda values: values * 2, lambda table, worker: worker.errors[0] and table[1, ANSWERED] > 60
    )
    assert all(error.startswith("texts: embedding[") for error in errors)
    assert table[0, EXACT] < table[0, ANSWERED]


def test_the_report_shows_it():
    one = held([400.0, 401.0, 402.0])
    line = Footprint("m", "auto", "embedding", one.requests, one.values, {"rss_mib": 7.5}, ["rss_mib"], 5.0)
    kept = []
    parts = section("x/soak", [json.loads(line.to_line())], lambda name, figure: kept.append(name) or name)
    assert kept == ["x-soak-soak"]
    assert "| embedding | 402 (+7.5) **grows** |" in parts[-1]


def test_results_are_written_where_it_is_told(tmp_path, monkeypatch, capsys):
    one = held([400.0, 401.0, 402.0])

    class Short(command.Soak):
        def __init__(self, *_):
            self._held = {"embedding": one}

        def run(self):
            pass

        def lines(self):
            return [Footprint("m", "auto", "embedding", one.requests, one.values, {}, [], 5.0)]

        def faults(self):
            return []

    monkeypatch.setattr(command, "Soak", Short)
    monkeypatch.setattr(command, "_target", lambda *_: nullcontext())
    assert command.main(["--machine", "test", "--name", "short", "--results", str(tmp_path)]) == 0
    file = tmp_path / "test" / "short.jsonl"
    assert json.loads(file.read_text())["note"] == "embedding"
    assert str(file) in capsys.readouterr().out
    assert command.parse(["--machine", "test"]).results == RESULTS


@pytest.fixture
def ended():
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_has_ended_cannot_be_read(ended):
    assert can_be_read(os.getpid())
    assert not can_be_read(ended)


def test_a_process_that_is_not_there_is_refused_at_the_start(ended, tmp_path, capsys):
    words = ["--machine", "test", "--results", str(tmp_path), "--server", "127.0.0.1:1", "--pid", str(ended)]
    assert command.main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"soak.py: process {ended} gives nothing to read")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_server_that_does_not_answer_is_told_in_one_line(protocol, tmp_path, capsys):
    class Live(service_pb2_grpc.GRPCInferenceServiceServicer):
        def ServerLive(self, request, context):  # noqa: N802
            return service_pb2.ServerLiveResponse(live=True)

    with socket.socket() as bound, ThreadPoolExecutor(1) as threads:  # nobody listens there, and nobody else can
        bound.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{bound.getsockname()[1]}"
        server = grpc.server(threads)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Live(), server)
        live = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        doors = ["--server", dead if protocol == "grpc" else live, "--http", dead]
        words = ["--machine", "test", "--results", str(tmp_path), *doors, "--pid", str(os.getpid())]
        assert command.main(words) == 1
        server.stop(None).wait()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"soak.py: the server at {dead} ({protocol}) does not answer: ")


def test_a_server_without_the_model_is_told_in_one_line(tmp_path, capsys, server):
    class Empty(service_pb2_grpc.GRPCInferenceServiceServicer):
        def ServerLive(self, request, context):  # noqa: N802
            return service_pb2.ServerLiveResponse(live=True)

        def ModelInfer(self, request, context):  # noqa: N802
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown model: embed")

    with ThreadPoolExecutor(1) as threads:
        empty = grpc.server(threads)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Empty(), empty)
        address = f"127.0.0.1:{empty.add_insecure_port('127.0.0.1:0')}"
        empty.start()
        doors = ["--server", address, "--http", server.url.removeprefix("http://")]
        words = ["--machine", "test", "--results", str(tmp_path), *doors, "--pid", str(os.getpid())]
        assert command.main(words) == 1
        empty.stop(None).wait()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("soak.py: ")
    assert "unknown model: embed" in line


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--minutes", "0"], "argument --minutes: 0, but it must be a number above 0"),
        (["--minutes", "-1"], "argument --minutes: -1, but it must be a number above 0"),
        (["--minutes", "nan"], "argument --minutes: nan, but"),
        (["--minutes", "inf"], "argument --minutes: inf, but"),
        (["--minutes", "some"], "argument --minutes: invalid positive_number value: 'some'"),
        (["--interval", "0"], "argument --interval: 0, but"),
        (["--server", "here", "--pid", "1"], "argument --server: 'here' is not HOST:PORT"),
        (["--name", "../x"], "argument --name: '../x' is not the name of a file or folder"),
    ],
)
def test_options_that_mean_nothing_are_refused(capsys, words, reason):
    with pytest.raises(SystemExit, match="2"):
        command.main(["--machine", "test", *words])
    assert reason in capsys.readouterr().err
