"""The commands as a user types them: `lazuli serve` with its printed examples, `lazuli embed`, `lazuli search`."""

import json
import os
import re
import subprocess

import numpy as np
import pyarrow.parquet as parquet
import pytest

from lazuli.launch.preflight import free_ports

from .conftest import DATA, assert_same_vectors
from .serving import Serving, port_flags, run


def shared_memory_of(launcher):
    """Names of the regions that the servers of a launcher made."""
    return [name for name in os.listdir("/dev/shm") if name.startswith("lazuli_") and f"_{launcher}_" in name]


@pytest.fixture
def serving():
    started = []

    def start(*arguments):
        started.append(Serving(*arguments))
        return started[-1]

    yield start
    for serve in started:
        serve.end()


@pytest.mark.parametrize("door", ["both", "unary", "stream"])
def test_printed_examples_work_when_pasted_and_ctrl_c_stops(serving, door):
    serve = serving("--door", door)
    banner = serve.banner()
    curl = next(line for line in banner.splitlines() if line.startswith("curl "))
    python = re.search(r"^\S+ - <<'END'$.*?^END$", banner, re.MULTILINE | re.DOTALL)[0]
    answer = json.loads(subprocess.run(curl, shell=True, capture_output=True, check=True, timeout=60).stdout)
    assert len(answer["embedding"]) == 384
    shown = subprocess.run(python, shell=True, capture_output=True, check=True, timeout=60, text=True).stdout
    assert "384" in shown if door == "stream" else shown.startswith("[[")
    assert shared_memory_of(serve.process.pid) != []
    assert serve.interrupt() == 0
    assert shared_memory_of(serve.process.pid) == []


def test_serve_says_which_port_is_taken(serving, server):
    port = server.http.split(":")[1]
    done = run("serve", *port_flags([port, *free_ports(2)]))
    assert done.returncode == 1
    assert port in done.stderr
    assert "Traceback" not in done.stderr


def test_serve_says_what_is_wrong_with_a_checkpoint(tmp_path):
    ports = port_flags(free_ports(3))
    missing = run("serve", "--checkpoint", tmp_path / "nothing", *ports)
    assert missing.returncode == 1
    assert str(tmp_path / "nothing") in missing.stderr
    (tmp_path / "config.json").write_text('{"architectures": ["T5Model"], "max_position_embeddings": 512}')
    unsupported = run("serve", "--checkpoint", tmp_path, *ports)
    assert unsupported.returncode == 1
    assert "T5Model" in unsupported.stderr


def test_doctor_finds_this_machine_fit():
    done = run("doctor", *port_flags(free_ports(3)))
    assert done.returncode == 0, done.stdout
    for word in ("numpy", "libpython", "shared memory"):
        assert word in done.stdout.lower()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_embed_a_text_file(server, sentence_transformer, tmp_path, protocol):
    lines = (DATA / "demo_lines.txt").read_text(encoding="utf-8").splitlines()
    url = server.grpc if protocol == "grpc" else server.http
    done = run("embed", DATA / "demo_lines.txt", "-o", tmp_path / "v.parquet", "--url", url, "--protocol", protocol)
    assert done.returncode == 0, done.stderr
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table["text"].to_pylist() == lines
    vectors = np.array(table["embedding"].to_pylist(), dtype=np.float32)
    assert_same_vectors(vectors, sentence_transformer.encode(lines, show_progress_bar=False))


def test_embed_real_sentences_from_jsonl_and_count_those_cut(server, sentence_transformer, tmp_path):
    texts = [json.loads(line)["text"] for line in (DATA / "sentences.jsonl").read_text(encoding="utf-8").splitlines()]
    done = run("embed", DATA / "sentences.jsonl", "-o", tmp_path / "v.npy", "--url", server.grpc)
    assert done.returncode == 0, done.stderr
    expected = sentence_transformer.encode(texts, show_progress_bar=False)
    plain = [row for row, text in enumerate(texts) if "[SEP]" not in text]
    assert_same_vectors(np.load(tmp_path / "v.npy")[plain], expected[plain])
    lengths = [len(ids) for ids in sentence_transformer.tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
    cut = sum(length > 256 for length in lengths)
    assert f" {cut} truncated" in done.stdout


def test_search_finds_what_is_meant(server, tmp_path):
    run("embed", DATA / "demo_lines.txt", "-o", tmp_path / "v.parquet", "--url", server.grpc)
    for file in (DATA / "demo_lines.txt", tmp_path / "v.parquet"):
        done = run("search", file, "how do I keep my plants alive", "-k", "3", "--url", server.grpc)
        assert done.returncode == 0, done.stderr
        assert re.search("water|soil|garden|seed|tomato|leaves|pot", done.stdout, re.IGNORECASE), done.stdout
