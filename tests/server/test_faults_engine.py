"""What goes wrong inside: poison texts, memory, the wall clock, a checkpoint that is damaged; others are served on."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from lazuli.checkpoint import resolve_checkpoint
from lazuli.launch.preflight import free_ports
from lazuli.launch.repository import built_in_repository

from .conftest import assert_same_vectors
from .serving import port_flags, run
from .supervised import Supervised, load, wait_for
from .wire import DOORS, HttpError, grpc_infer, http_infer

POISON = "a snowman: \u2603"
DAY_S = 86400


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """MiniLM whose vocabulary lacks the token for what is not in it: of such texts the tokenizer makes an exception."""
    folder = tmp_path_factory.mktemp("damaged") / "checkpoint"
    shutil.copytree(resolve_checkpoint("all-MiniLM-L6-v2"), folder)
    definition = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    definition["model"]["unk_token"] = "[NOT THERE]"
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    return folder


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """A library that sets a server's wall clock, and the file that says by how much."""
    folder = tmp_path_factory.mktemp("clock")
    source = Path(__file__).parent / "wall_clock.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", folder / "clock.so", source, "-ldl"], check=True, timeout=60)
    (folder / "offset").write_text("0\n")
    return folder / "clock.so", folder / "offset"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """With batches so large that one needs much more memory than the process has at hand."""
    folder = tmp_path_factory.mktemp("large") / "model_repository"
    shutil.copytree(built_in_repository(), folder)
    config = folder / "embedding" / "config.pbtxt"
    budget = '"token_budget", value: {{ string_value: "{}"'
    assert budget.format("auto") in config.read_text()
    config.write_text(config.read_text().replace(budget.format("auto"), budget.format(16384)))
    return folder


@pytest.fixture(scope="module")
def serve(checkpoint, clock, repository):
    environment = {**os.environ, "LD_PRELOAD": str(clock[0]), "WALL_CLOCK_OFFSET": str(clock[1])}
    flags = ["--door=unary", f"--checkpoint={checkpoint}", f"--model-repository={repository}"]
    started = Supervised(*flags, env=environment)
    try:
        started.banner()
        yield started
    finally:
        started.end()


@pytest.fixture
def plain(reference):
    """Texts of known words."""
    rows = [row for row, text in enumerate(reference[0]) if re.fullmatch(r"[A-Za-z ,.]+", text)]
    return [reference[0][row] for row in rows], reference[1][rows]


def refused_as_internal(call):
    with pytest.raises((InferenceServerException, HttpError)) as caught:
        call()
    error = caught.value
    if isinstance(error, HttpError):
        assert error.status in (500, 400)  # 400 is Triton 24.10's code for every error at `generate`
        return error.text
    assert error.status() in ("StatusCode.INTERNAL", "500", None)
    return error.message()


@pytest.fixture
def no_restart(serve):
    before = len(serve.events("restart"))
    yield
    assert len(serve.events("restart")) == before
    assert serve.ready()[0]


def test_memory_runs_out_in_a_batch(serve, plain):
    """Really: for a while, the process of the engine may not have any more. If it dies of that, it is restarted."""
    texts, expected = plain
    large = ["word " * 200] * 64
    engine = serve.stub("embedding")
    size = 1024 * int(re.search(r"VmData:\s+(\d+)", Path(f"/proc/{engine.pid}/status").read_text())[1])
    resource.prlimit(engine.pid, resource.RLIMIT_DATA, (size + (1 << 20), resource.RLIM_INFINITY))
    try:
        with ThreadPoolExecutor(4) as clients:
            found = list(clients.map(lambda door: ask(door, serve, large), [grpc_infer, http_infer] * 2))
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(engine.pid, resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(set(map(str, found)), serve.events("restart"))
    for error in found:
        assert isinstance(error, Exception), "it had memory enough"
        assert re.search("the forward pass failed|not healthy|connect|reset|closed", str(error), re.I)
    serve.wait_until(True)
    assert grpc_infer(serve, large)[0].shape == (64, 384)
    for row in range(0, 40, 5):  # in shapes that are new to it
        assert_same_vectors(grpc_infer(serve, texts[row : row + 5])[0], expected[row : row + 5])


def ask(door, serve, texts):
    try:
        return door(serve, texts, workload="query")[0]  # in one batch, whatever else there is
    except (InferenceServerException, HttpError, OSError) as error:
        return error


@pytest.mark.usefixtures("no_restart")
@pytest.mark.parametrize("door", ["grpc-infer", "grpc-stream-unary", "http-infer", "http-generate"])
def test_a_text_that_makes_the_tokenizer_raise_fails_alone(serve, plain, door):
    texts, expected = plain

    def client(number):
        if number % 3 == 0:
            assert "Missing [UNK] token" in refused_as_internal(lambda: DOORS[door](serve, ["fine", POISON]))
        else:
            assert_same_vectors(DOORS[door](serve, texts[number : number + 1])[0], expected[number : number + 1])

    with ThreadPoolExecutor(12) as clients:
        list(clients.map(client, range(12)))


@pytest.mark.usefixtures("no_restart")
def test_the_wall_clock_jumps_under_load(serve, plain, clock):
    _, offset = clock

    def is_off_by(seconds):
        """By what the models say on metrics."""
        with urllib.request.urlopen(f"http://{serve.metrics}/metrics", timeout=10) as answer:
            found = re.findall(r"^lazuli_published_timestamp_seconds\{.*\} (\S+)$", answer.read().decode(), re.M)
        return all(abs(float(at) - time.time() - seconds) < DAY_S / 2 for at in found)

    with load(serve, plain, clients=3):
        for seconds in (DAY_S, -DAY_S, 0):
            offset.write_text(f"{seconds}\n")
            wait_for(partial(is_off_by, seconds), "the new time")
            for door in (grpc_infer, http_infer):
                assert_same_vectors(door(serve, plain[0][:4], deadline_ms=60_000)[0], plain[1][:4])
            assert serve.ready()[0]


def test_a_checkpoint_that_is_half_written_while_it_is_served(serve, checkpoint, plain):
    """What runs has its own copy. A restart fails until the file is whole; then the next one works."""
    texts, expected = plain
    weights = checkpoint / "model.safetensors"
    whole = weights.read_bytes()
    with weights.open("r+b") as file:
        file.truncate(len(whole) // 2)
    assert_same_vectors(grpc_infer(serve, texts[:8])[0], expected[:8])
    before = len(serve.events("restart"))
    os.kill(serve.stub("embedding").pid, signal.SIGKILL)
    serve.wait_until(False)
    wait_for(lambda: len(serve.events("restart")) >= before + 2, "a restart that fails")
    assert "model.safetensors" in serve.events("restart")[-1]["reason"]
    assert not serve.ready()[0]
    weights.write_bytes(whole)
    serve.wait_until(True)
    assert_same_vectors(grpc_infer(serve, texts[:8])[0], expected[:8])
    died, failed = serve.events("restart")[before : before + 2]
    assert died["reason"] == "the process of embedding died"
    assert failed["pause_s"] == 2 * died["pause_s"]
    print(serve.events("serving again")[-1])


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_half_written_checkpoint_is_not_served(tmp_path, name):
    shutil.copytree(resolve_checkpoint("all-MiniLM-L6-v2"), tmp_path / "half")
    path = tmp_path / "half" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = run("serve", "--door=unary", f"--checkpoint={tmp_path / 'half'}", *port_flags(free_ports(3)))
    assert done.returncode == 1
    assert name in done.stderr
    assert "Traceback" not in done.stderr
