"""`lazuli gateway` in front of a real server, asked by the official clients of the APIs that it speaks."""

import json
import signal
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import cohere
import httpx
import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.repository import BUILT_IN
from lazuli.launch.running import running_server
from lazuli.repository.addition import Wish, add
from lazuli_client import LazuliClient

from . import test_token_outputs
from .conftest import assert_same_vectors
from .gateways import Gateway, running_gateway
from .test_admin import admin
from .test_bad_input import BAD_TEXTS
from .test_rerank import DOCUMENTS, QUERY, write_bert

bge_m3 = test_token_outputs.bge_m3  # a fixture


@pytest.fixture(scope="module")
def server(tmp_path_factory, bge_m3):
    """The built-in model, and small ones: for pairs, with labels, with weights of words."""
    folder = tmp_path_factory.mktemp("gateway")
    names = {0: "good", 1: "bad", 2: "naïve"}
    moods = write_bert(folder / "moods", id2label=names, label2id={name: number for number, name in names.items()})
    judge = write_bert(folder / "judge", num_labels=1)
    for name, checkpoint in (("classify", moods), ("words", bge_m3[0])):
        add(Wish(name, str(checkpoint), folder / "added"), lambda text: None)
    options = ServeOptions(
        model_repositories=(BUILT_IN, folder / "added"), rerank_checkpoint=str(judge), door=Door.UNARY
    )
    with running_server(options) as running:
        yield running


@pytest.fixture(scope="module", params=["server", "gateway"])
def gateway(request, server, tmp_path_factory):
    """Tokenising in the server, and in the gateway."""
    arguments = ["--tokenizer", "all-MiniLM-L6-v2"] if request.param == "gateway" else []
    log_path = tmp_path_factory.mktemp("gateway") / "log"
    arguments += ["--alias", "text-embedding-3-small=embed", "--chunk-tokens", "1000"]
    with running_gateway(log_path, [server.grpc], *arguments) as running:
        yield running


@pytest.fixture
def openai_client(gateway):
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def embedded(answer):
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return np.array([one.embedding for one in answer.data], np.float32)


@pytest.mark.parametrize("encoding", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}], ids=str)
def test_openai_client(openai_client, reference, encoding):
    """Without a format, the client asks for base64 and decodes it."""
    answer = openai_client.embeddings.create(model="embed", input=reference[0], **encoding)
    if encoding.get("encoding_format") == "base64":
        import base64

        vectors = np.array([np.frombuffer(base64.b64decode(one.embedding), "<f4") for one in answer.data])
    else:
        vectors = embedded(answer)
    assert_same_vectors(vectors, reference[1])


def test_openai_usage_and_dimensions(openai_client, server, reference):
    with LazuliClient(server.grpc) as client:
        counts = client.embed(reference[0]).token_counts
    answer = openai_client.embeddings.create(model="text-embedding-3-small", input=reference[0])
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == counts.sum()
    extra = {"force_dimensions": True}
    short = openai_client.embeddings.create(model="embed", input=reference[0][0], dimensions=64, extra_body=extra)
    expected = reference[1][:1, :64] / np.linalg.norm(reference[1][:1, :64])
    assert_same_vectors(embedded(short), expected)
    assert [model.id for model in openai_client.models.list()] == [
        "embed",
        "rerank",
        "classify",
        "text-embedding-3-small",
    ]


def test_openai_token_ids(openai_client, sentence_transformer, reference):
    ids = sentence_transformer.tokenizer(reference[0][:5])["input_ids"]
    assert_same_vectors(embedded(openai_client.embeddings.create(model="embed", input=ids)), reference[1][:5])
    one = openai_client.embeddings.create(model="embed", input=ids[0])
    assert_same_vectors(embedded(one), reference[1][:1])
    assert one.usage.prompt_tokens == len(ids[0])


def test_openai_errors(openai_client):
    with pytest.raises(openai.BadRequestError, match=r"input\[1\]: 302 tokens, but at most 256") as caught:
        openai_client.embeddings.create(model="embed", input=["short", "word " * 300])
    assert (caught.value.param, caught.value.type) == ("input", "invalid_request_error")
    with pytest.raises(openai.NotFoundError, match="'gpt' is not known"):
        openai_client.embeddings.create(model="gpt", input="a")


def test_a_large_request_equals_single_ones(openai_client, reference):
    """Cut into chunks of 1000 tokens, joined in order."""
    texts = (reference[0] * 4)[:300]
    expected = np.tile(reference[1], (4, 1))[:300]
    assert_same_vectors(embedded(openai_client.embeddings.create(model="embed", input=texts)), expected)


def test_cohere_client(gateway, server, reference):
    kinds = ["float", "ubinary"]
    with httpx.Client() as transport:
        client = cohere.ClientV2(api_key="none", base_url=gateway.url, httpx_client=transport)
        texts = reference[0][:9]
        answer = client.embed(model="embed", input_type="search_document", texts=texts, embedding_types=kinds)
        assert_same_vectors(np.array(answer.embeddings.float_, np.float32), reference[1][:9])
        bits = np.packbits(reference[1][:9] > 0, axis=1)
        different = np.unpackbits(np.array(answer.embeddings.ubinary, np.uint8) ^ bits)
        assert different.mean() < 0.01  # values around zero
        ranking = client.rerank(model="rerank", query=QUERY, documents=DOCUMENTS, top_n=2)
        assert [one.index for one in ranking.results] == scores(server).indices.tolist()[:2]
        with pytest.raises(cohere.core.ApiError) as caught:
            client.embed(model="embed", input_type="search_query", texts=["word " * 300], truncate="NONE")
        assert (caught.value.status_code, "texts[0]: 302 tokens" in caught.value.body["message"]) == (400, True)


def test_hugging_face_client(gateway, server, reference):
    with InferenceClient(model=f"{gateway.url}/embed") as client:
        assert_same_vectors(client.feature_extraction(reference[0][:2]), reference[1][:2])
    with InferenceClient(model=f"{gateway.url}/predict") as client:
        best = client.text_classification("w1 w2")
    with LazuliClient(server.grpc) as client:
        expected = client.classify(["w1 w2", "w3"])
    assert best.label == expected.labels[0]
    found = gateway.post("/predict", {"inputs": [["w1 w2"], ["w3"]]})[2]
    assert [row[0]["label"] for row in found] == list(expected.labels)
    assert [row[0]["score"] for row in found] == pytest.approx(expected.probabilities.max(axis=1).tolist(), abs=1e-5)


def scores(server):
    """What the client gets for the documents."""
    with LazuliClient(server.grpc) as client:
        return client.rerank(QUERY, DOCUMENTS, activation="none", truncate="end")


@pytest.mark.parametrize("raw", [False, True])
def test_rerank_equals_the_client(gateway, server, raw):
    """A cross-encoder; its logits are raw scores."""
    expected = scores(server)
    numbers = expected.scores if raw else 1 / (1 + np.exp(-expected.scores))
    body = {"query": QUERY, "raw_scores": raw}
    found = gateway.post("/rerank", body | {"texts": DOCUMENTS, "return_text": True})[2]
    assert [one["index"] for one in found] == expected.indices.tolist()
    assert [one["text"] for one in found] == [DOCUMENTS[one["index"]] for one in found]
    np.testing.assert_allclose([one["score"] for one in found], numbers, atol=1e-5)
    jina = gateway.post("/v1/rerank", body | {"model": "rerank", "documents": DOCUMENTS})[2]
    assert [one["index"] for one in jina["results"]] == expected.indices.tolist()
    assert jina["usage"]["total_tokens"] == expected.token_counts.sum()
    status, _, answer = gateway.post("/rerank", body | {"texts": DOCUMENTS, "truncate": False})
    assert (status, "texts[2]: " in answer["error"]) == (400, True)


def test_weights_of_words_and_the_health_of_each_model(server, tmp_path):
    texts = test_token_outputs.TEXTS
    with LazuliClient(server.grpc, model="words") as client:
        expected = client.embed(texts, output="sparse").sparse
    arguments = ["--model", "words", "--model", "nobody"]
    with running_gateway(tmp_path / "log", [server.grpc], *arguments) as gateway:
        found = gateway.post("/embed_sparse", {"inputs": texts})[2]
        assert [[one["index"] for one in row] for row in found] == [row.ids.tolist() for row in expected]
        assert all(found)
        for row, other in zip(found, expected, strict=True):
            np.testing.assert_allclose([one["value"] for one in row], other.weights, atol=1e-5)
        status, _, body = gateway.post("/embed_sparse", {"inputs": ["w1", "w2 " * 100]})
        assert (status, "inputs[1]: 102 tokens" in body["error"]) == (400, True)
        status, _, body = gateway.post("/v1/embeddings", {"model": "embed", "input": "a"})
        assert (status, "there are words" in body["error"]["message"]) == (404, True)
        assert json.loads(gateway.get("/health?model=words"))["models"] == {
            "words": {"servers_ready": 1},
            "nobody": {"servers_ready": 0},
        }


def test_a_model_that_is_unloaded_takes_no_other_with_it(server, tmp_path, reference):
    """And where two models embed, each answers for the vectors that it has."""
    models = [word for name in ("embed", "words", "classify") for word in ("--model", name)]
    with running_gateway(tmp_path / "log", [server.grpc], *models, "--queue", "0.2") as gateway:

        def is_ready(name):
            return json.loads(gateway.get("/health"))["models"][name]["servers_ready"] == 1

        wait_for(lambda: all(map(is_ready, ("embed", "words", "classify"))))
        vectors = np.array(gateway.post("/embed", {"inputs": reference[0][:2]})[2], np.float32)
        assert_same_vectors(vectors, reference[1][:2])
        assert all(gateway.post("/embed_sparse", {"inputs": ["w1"]})[2])
        path = "/v2/repository/models/classify"
        try:
            assert admin(server, f"{path}/unload", server.admin_key) == 200
            wait_for(lambda: not is_ready("classify"))
            status, _, body = gateway.post("/predict", {"inputs": "w1"})
            assert (status, "no available versions" in body["error"]) == (503, True)
            assert (is_ready("embed"), gateway.post("/embed", {"inputs": "a"})[0]) == (True, 200)
            # A gateway that starts now offers what is there, and the other one when it comes.
            with running_gateway(tmp_path / "later", [server.grpc], *models) as later:
                wait_for(lambda: later.post("/embed", {"inputs": "a"})[0] == 200)
                assert admin(server, f"{path}/load", server.admin_key) == 200
                wait_for(lambda: later.post("/predict", {"inputs": "w1"})[0] == 200)
        finally:
            admin(server, f"{path}/load", server.admin_key)
        wait_for(lambda: is_ready("classify"))
        assert gateway.post("/predict", {"inputs": "w1"})[0] == 200


OPTIONS = {"truncate", "dimensions", "normalize", "prompt_name", "input_type", "instruction"}
TABLE = {name: case for name, case in BAD_TEXTS.items() if set(case[1]) <= OPTIONS and name != "too-many-rows"}
# The gateway itself checks types and choices, in words of its own.
_OWN_WORDS = {
    "truncate-value": ["truncate", "middle"],
    "dimensions-zero": ["dimensions", ">= 1"],
    "dimensions-negative": ["dimensions", ">= 1"],
    "dimensions-text": ["dimensions", "int"],
    "dimensions-bool": ["dimensions", "int"],
    "normalize-text": ["normalize", "bool"],
    "input-type-unknown": ["input_type", "passage"],
    "prompt-number": ["prompt_name", "str"],
}


@pytest.mark.parametrize("case", TABLE)
def test_bad_input_as_at_the_servers_own_doors(gateway, reference, case):
    texts, options, words = TABLE[case]
    status, _, body = gateway.post("/v1/embeddings", {"model": "embed", "input": texts, **options})
    assert status == 400
    words = _OWN_WORDS.get(case, [word.replace("text[", "input[") for word in words])
    assert [word for word in words if word not in body["error"]["message"]] == []
    assert gateway.post("/v1/embeddings", {"model": "embed", "input": reference[0][0]})[0] == 200


@pytest.mark.parametrize("body", [b'{"model":"embed","input":"ab\xff"}', b'{"model":"embed","input":["a","\\ud800"]}'])
def test_what_is_no_unicode(gateway, body):
    assert gateway.post("/v1/embeddings", body)[0] == 400


def test_a_trace_is_passed_on(gateway):
    """The engine takes it among the parameters; others it would refuse."""
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Request-Id": "mine-7"}
    status, answered, _ = gateway.post("/v1/embeddings", {"model": "embed", "input": "a"}, headers)
    assert (status, answered["x-request-id"]) == (200, "mine-7")


def test_tokenize_only_where_the_tokenizer_is(gateway):
    status, _, body = gateway.post("/tokenize", {"inputs": "a blue gem"})
    if status == 501:
        assert "--tokenizer" in body["error"]
    else:
        assert [one["text"] for one in body[0]] == ["[CLS]", "a", "blue", "gem", "[SEP]"]
        assert [one["special"] for one in body[0]] == [True, False, False, False, True]
        assert [(one["start"], one["stop"]) for one in body[0]][1:4] == [(0, 1), (2, 6), (7, 10)]


def test_a_tokenizer_that_is_not_the_servers_is_refused(server, tmp_path):
    """Of the same checkpoint with another limit: answers would differ."""
    gateway = Gateway(
        tmp_path / "log", [server.grpc], "--tokenizer", "all-MiniLM-L6-v2", "--max-seq-length", "64", "--queue", "0.2"
    )
    try:
        gateway.wait_until_ready(servers=0)
        wait_for(lambda: "its tokenizer of embed is not the one" in gateway.log())
        status, _, body = gateway.post("/v1/embeddings", {"model": "embed", "input": "a"})
        assert (status, "no server" in body["error"]["message"]) == (503, True)
    finally:
        gateway.end()


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_sigterm_answers_what_is_under_way(server, tmp_path, reference):
    # Time enough for a machine that has much else to do.
    with running_gateway(tmp_path / "log", [server.grpc], "--drain", "60") as gateway, ThreadPoolExecutor(4) as pool:
        body = {"model": "embed", "input": reference[0][:30]}
        under_way = [pool.submit(gateway.post, "/v1/embeddings", body) for _ in range(3)]
        wait_for(lambda: b"lazuli_gateway_requests_under_way 4.0" in gateway.get("/metrics") or under_way[0].done())
        gateway.process.send_signal(signal.SIGTERM)
        answers = [one.result() for one in under_way]
        assert [(status, len(found.get("data", found))) for status, _, found in answers] == [
            (200, len(body["input"]))
        ] * 3
        assert gateway.process.wait(timeout=70) == 0


def test_several_processes_share_the_work_and_the_metrics(server, tmp_path):
    with running_gateway(tmp_path / "log", [server.grpc], "--workers", "2") as gateway:
        start = threading.Barrier(8)

        def ask(number):
            start.wait()
            return gateway.post("/v1/embeddings", {"model": "embed", "input": f"text {number}"})[0]

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(8))) == [200] * 8
        line = 'lazuli_gateway_requests_total{path="/v1/embeddings",status="200"} 8.0'
        assert {line in gateway.get("/metrics").decode() for _ in range(6)} == {True}


def test_processes_count_rates_together(server, tmp_path):
    """Of eight requests at once one is let in, whichever processes they reach."""
    arguments = ["--workers", "2", "--rate", "0.001"]
    with running_gateway(tmp_path / "log", [server.grpc], *arguments) as gateway, ThreadPoolExecutor(8) as pool:
        body = {"model": "embed", "input": "a"}
        statuses = list(pool.map(lambda _: gateway.post("/v1/embeddings", body)[0], range(8)))
        assert sorted(statuses) == [200] + [429] * 7


def test_tls(server, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(cafile=certificate)
    arguments = ["--tls-cert", certificate, "--tls-key", key]
    with (
        running_gateway(tmp_path / "log", [server.grpc], *arguments, scheme="https", context=context) as gateway,
        httpx.Client(verify=context) as transport,
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", http_client=transport) as client,
    ):
        assert client.embeddings.create(model="embed", input="a").data


def test_keys_of_the_environment_and_of_a_file(server, tmp_path, monkeypatch):
    monkeypatch.setenv("LAZULI_GATEWAY_API_KEYS", "key-of-the-environment")
    (tmp_path / "keys").write_text("key-of-the-file\n")
    with running_gateway(tmp_path / "log", [server.grpc], "--api-keys", tmp_path / "keys") as gateway:
        for key in ("key-of-the-environment", "key-of-the-file"):
            with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
                assert client.embeddings.create(model="embed", input="a").data
        with (
            openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="key-of-nobody") as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.embeddings.create(model="embed", input="a")
        assert "key-of" not in gateway.log()
