"""The figures at the metrics port move by exactly what was sent, and hold nothing of what it said."""

import os
import re
import signal
import time
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from lazuli.repository.addition import Wish, add
from lazuli.repository.names import Task
from lazuli_client import LazuliClient

from .wire import HttpError, grpc_infer, grpc_stream, http_generate, http_generate_stream, http_infer, make_input

MINILM = "all-MiniLM-L6-v2"
COUNTED = ("lazuli_requests_total", "lazuli_texts_total", "lazuli_tokens_total", "lazuli_truncated_texts_total")
LONG = "word " * 300
# [CLS], the word, [SEP]
WORD_TOKENS = 3
SECRET = "zebrafinch4711"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A server whose log is kept, with MiniLM for every task that it can do."""
    folder = tmp_path_factory.mktemp("metrics")
    for name, task in (("pairs", Task.RERANK), ("chunks", Task.CONTEXT)):
        add(Wish(name, MINILM, folder / "added", task=task, door=Door.UNARY), lambda text: None)
    options = ServeOptions(model_repositories=("built-in", folder / "added"))
    with running_server(options, log_path=folder / "server.log") as running:
        yield running


def read_text(server):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as answer:
        return answer.read().decode()


def read(server):
    """All values of Lazuli: (metric, model, what its other labels say) -> number."""
    values = {}
    for name, labels, value in re.findall(r"^(lazuli_\w+)\{(.*)\} (\S+)$", read_text(server), re.MULTILINE):
        fields = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        model, instance = fields.pop("model"), fields.pop("model_instance")
        assert instance.startswith(model)
        assert fields.pop("process").isdigit()
        values[name, model, *fields.values()] = float(value)
    return values


def published_since(server, moment, timeout_s=20.0):
    """The values, once every model has published after a moment."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        values = read(server)
        if min(value for key, value in values.items() if key[0] == "lazuli_published_timestamp_seconds") > moment:
            return values
        time.sleep(0.1)
    raise AssertionError("the metrics are not brought up to date")


def changes(before, after):
    return {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}


def ok(model, rows, tokens=None):
    """What one request changes that was answered."""
    changed = {("lazuli_requests_total", model, "ok"): 1, ("lazuli_texts_total", model, "ok"): rows}
    return changed if tokens is None else {**changed, ("lazuli_tokens_total", model, "ok"): tokens}


def refused(model, kind, rows, tokens=None):
    return {(name, model, kind): number for (name, _, _), number in ok(model, rows, tokens).items()}


def text_request(door, engine):
    def send(server):
        _, counts = door(server, ["one", "two words", LONG], truncate="end")
        assert counts.tolist() == [WORD_TOKENS, WORD_TOKENS + 1, 256]
        tokens = int(counts.sum())
        return {**ok("tokenizer", 3), **ok(engine, 3, tokens), ("lazuli_truncated_texts_total", "tokenizer"): 1}

    return send


def bad_request(expected, texts, **options):
    def send(server):
        with pytest.raises((InferenceServerException, HttpError)):
            grpc_infer(server, texts, **options)
        return expected

    return send


def pretokenized(input_ids):
    values = np.array([input_ids], dtype=np.int32)
    return [
        make_input(triton_grpc, "input_ids", values, "INT32"),
        make_input(triton_grpc, "attention_mask", np.ones_like(values, dtype=np.int8), "INT8"),
    ]


def tokens_of_ones_own(server):
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.infer("embedding", pretokenized([101, 7592, 2088, 102]))
    return ok("embedding", 1, 4)


def token_that_is_none(server):
    with triton_grpc.InferenceServerClient(server.grpc) as client, pytest.raises(InferenceServerException):
        client.infer("embedding", pretokenized([101, 999_999, 102]))
    return refused("embedding", "InputError", 1, 3)


def pairs(server):
    with LazuliClient(server.grpc, model="pairs") as client:
        client.rerank("query", ["one", "two", "three"])
    return {**ok("pairs.rerank_tokenizer", 3), **ok("pairs.reranking", 3, 6 * WORD_TOKENS)}


def chunks(server):
    with LazuliClient(server.grpc, model="chunks") as client:
        documents = client.embed_context([["one", "two"], ["three"]])
    tokens = sum(int(document.token_counts.sum()) for document in documents)
    return {**ok("chunks.context_tokenizer", 3), **ok("chunks.contextual", 3, tokens)}


REQUESTS = {
    "grpc": text_request(grpc_infer, "embedding"),
    "grpc-stream": text_request(grpc_stream, "embedding_stream"),
    "http": text_request(http_infer, "embedding"),
    "http-generate": text_request(http_generate, "embedding"),
    "http-generate-stream": text_request(http_generate_stream, "embedding_stream"),
    "tokens": tokens_of_ones_own,
    "bad-token": token_that_is_none,
    "too-long": bad_request(refused("tokenizer", "InputError", 2), ["short", LONG]),
    "not-utf-8": bad_request(refused("tokenizer", "InputError", 1), [b"\xff"]),
    "unknown-option": bad_request(refused("tokenizer", "OptionError", 2), ["one", "two"], nonsense="x"),
    "option-of-the-engine": bad_request(
        {**ok("tokenizer", 1), **refused("embedding", "OptionError", 1, WORD_TOKENS)}, ["one"], dimensions=385
    ),
    "pairs": pairs,
    "chunks": chunks,
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_counters_move_by_what_was_sent(measured, kind):
    before = published_since(measured, time.time() + 0.5)
    expected = REQUESTS[kind](measured)
    changed = changes(before, published_since(measured, time.time() + 0.5))
    counted = {key: value for key, value in changed.items() if key[0] in COUNTED}
    assert counted == expected


def test_histograms_hold_what_the_counters_count(measured):
    before = published_since(measured, time.time() + 0.5)
    sent = Counter()
    for rows in (1, 7, 40):
        _, counts = grpc_infer(measured, ["one two"] * rows)
        sent.update(requests=1, texts=rows, tokens=int(counts.sum()))
    values = published_since(measured, time.time() + 0.5)
    changed = changes(before, values)
    assert changed["lazuli_batch_sequences_sum", "embedding"] == sent["texts"]
    assert changed["lazuli_batch_tokens_sum", "embedding"] == sent["tokens"]
    assert changed["lazuli_request_seconds_count", "embedding"] == sent["requests"]
    assert changed["lazuli_reply_seconds_count", "embedding"] == sent["requests"]
    assert changed["lazuli_step_seconds_count", "embedding"] == sent["requests"]
    assert changed["lazuli_tokenize_seconds_count", "tokenizer"] == sent["requests"]
    assert 0 < changed["lazuli_step_seconds_sum", "embedding"] <= changed["lazuli_request_seconds_sum", "embedding"]
    assert changed["lazuli_device_busy_seconds_total", "embedding"] > 0
    for name in ("request_seconds", "step_seconds", "reply_seconds", "batch_tokens", "batch_sequences"):
        name = f"lazuli_{name}"
        buckets = {key[2]: value for key, value in values.items() if key[:2] == (f"{name}_bucket", "embedding")}
        upward = [buckets[le] for le in sorted(buckets, key=float)]
        assert upward == sorted(upward)
        assert buckets["+Inf"] == values[f"{name}_count", "embedding"]


def test_nothing_waits_in_the_end(measured):
    values = published_since(measured, time.time())
    assert values["lazuli_queue_tokens", "embedding"] == 0
    assert values["lazuli_queue_oldest_seconds", "embedding"] == 0


def test_no_text_in_metrics_or_log(measured):
    grpc_infer(measured, [SECRET], instruction=SECRET)
    grpc_stream(measured, [SECRET])
    for texts, options in (
        ([f"{SECRET} " * 300], {}),
        (["a"], {SECRET: 1}),
        (["a"], {"prompt_name": SECRET}),
        (["a"], {"truncate": SECRET}),
        ([SECRET.encode() + b"\xff"], {}),
    ):
        with pytest.raises(InferenceServerException):
            grpc_infer(measured, texts, **options)
    published_since(measured, time.time() + 0.5)
    assert SECRET not in read_text(measured)
    assert SECRET not in measured.log_path.read_text(encoding="utf-8")


def stub_of(server, model):
    """The process that runs a model."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if parent == server.process.pid and f"/{model}/1/model.py".encode() in command:
            return int(folder.name)
    raise AssertionError(f"nothing runs {model}")


def test_a_process_that_stands_still_is_seen_to(measured):
    stamp = "lazuli_published_timestamp_seconds", "pairs.reranking"
    stub = stub_of(measured, stamp[1])
    os.kill(stub, signal.SIGSTOP)
    try:
        time.sleep(0.5)  # what was on its way arrives
        before = read(measured)
        time.sleep(2.5)
        after = read(measured)
    finally:
        os.kill(stub, signal.SIGCONT)
    assert after[stamp] == before[stamp]
    assert after[stamp[0], "embedding"] > before[stamp[0], "embedding"]
    assert published_since(measured, time.time())[stamp] > after[stamp]


def test_off_and_a_log_in_text(tmp_path):
    environment = {"LAZULI_METRICS": "off", "LAZULI_LOG_FORMAT": "text"}
    with running_server(ServeOptions(door=Door.UNARY), environment=environment, log_path=tmp_path / "log") as running:
        grpc_infer(running, ["one"])
        text = read_text(running)
    assert "lazuli_" not in text
    assert "nv_inference_request_success" in text
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert re.search(r'^I\d{4} .*\] "engine: all-MiniLM-L6-v2 on ', log, re.MULTILINE)
    assert '{"time"' not in log
