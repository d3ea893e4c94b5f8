"""The APIs and the guard, through the whole application."""

import asyncio
import base64
import json
import logging
import sys

import numpy as np
import pytest

from lazuli_client.errors import (
    ConnectionFailedError,
    InvalidInputError,
    ServerError,
    UnavailableError,
    UnsupportedError,
)
from lazuli_client.gateway.apis import endpoint
from lazuli_client.gateway.errors import ApiError
from lazuli_client.gateway.replicas.call import Call

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LONG = "word " * 60


def vectors_of(answer):
    return np.array([one["embedding"] for one in answer.json()["data"]], np.float32)


async def test_openai_embeddings(gateway, fake):
    async with gateway() as app:
        answer = await app.post("/v1/embeddings", {"model": "embed", "input": ["abc", "défg"]})
        assert answer.status == 200
        body = answer.json()
        assert vectors_of(answer).tolist() == [fake.vector("abc").tolist(), fake.vector("défg").tolist()]
        assert [one["index"] for one in body["data"]] == [0, 1]
        assert body["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
        assert (body["object"], body["model"], body["data"][0]["object"]) == ("list", "embed", "embedding")
        one = await app.post("/v1/embeddings", {"model": "embed", "input": "abc"})
        assert vectors_of(one).tolist() == [fake.vector("abc").tolist()]


async def test_openai_base64_has_the_same_numbers(gateway):
    async with gateway() as app:
        body = {"model": "embed", "input": ["abc", "de"]}
        numbers = vectors_of(await app.post("/v1/embeddings", body))
        answer = await app.post("/v1/embeddings", body | {"encoding_format": "base64"})
        coded = [base64.b64decode(one["embedding"]) for one in answer.json()["data"]]
        assert np.array([np.frombuffer(one, "<f4") for one in coded]).tolist() == numbers.tolist()


@pytest.mark.parametrize(("given", "rows"), [([5, 6], [[5, 6]]), ([[5, 6], [7]], [[5, 6], [7]])])
async def test_openai_token_ids_go_to_the_engine(gateway, given, rows):
    async with gateway() as app:
        answer = await app.post("/v1/embeddings", {"model": "embed", "input": given})
        assert vectors_of(answer)[:, 0].tolist() == [sum(row) for row in rows]
        assert answer.json()["usage"]["total_tokens"] == sum(map(len, rows))
        assert app.wires["one:1"].requests[-1].model == "embedding"


async def test_options_reach_the_server(gateway):
    options = {"truncate": "end", "input_type": "query", "normalize": True, "dimensions": 2, "force_dimensions": True}
    async with gateway() as app:
        await app.post("/v1/embeddings", {"model": "embed", "input": LONG, "workload": "bulk", **options})
        sent = app.wires["one:1"].requests[-1].parameters
        assert {name: sent[name] for name in options} == options
        assert sent["workload"] == "bulk"


BAD = {
    "no-json": (b'{"input', 400, "not valid JSON"),
    "utf-8": (b'{"model": "embed", "input": "a\xff"}', 400, "JSON"),
    "no-model": ({"input": "a"}, 400, "model"),
    "unknown-field": ({"model": "embed", "input": "a", "top_p": 1}, 400, "top_p"),
    "number": ({"model": "embed", "input": 7}, 400, "input: Expected"),
    "mixed": ({"model": "embed", "input": ["a", 7]}, 400, "input: must be all strings"),
    "float-in-list": ({"model": "embed", "input": ["a", 7.5]}, 400, "input[1]"),
    "nothing": ({"model": "embed", "input": []}, 400, "input: there is no text"),
    "no-token": ({"model": "embed", "input": [[1], []]}, 400, "input[1]: there is no token"),
    "id-too-large": ({"model": "embed", "input": [[1], [2**40]]}, 400, "input[1]: an id does not fit"),
    "too-long": ({"model": "embed", "input": ["a", LONG]}, 400, "input[1]: 61 tokens, but at most 50"),
    "dimensions": ({"model": "embed", "input": "a", "dimensions": 0}, 400, "dimensions"),
    "encoding": ({"model": "embed", "input": "a", "encoding_format": "hex"}, 400, "encoding_format"),
    "two-prompts": ({"model": "embed", "input": "a", "prompt_name": "x", "instruction": "y"}, 400, "only one"),
    "nul": ({"model": "embed", "input": "a", "instruction": "a\0b"}, 400, "instruction: NUL"),
    "surrogate": (b'{"model": "embed", "input": ["a", "\\ud800"]}', 400, ""),
    "unknown-model": ({"model": "gpt", "input": "a"}, 404, "'gpt' is not known; there are embed"),
    "other-model": ({"model": "rerank", "input": "a"}, 400, "to rerank, not to embed"),
    "ids": ({"model": "embed", "input": [[1], [1] * 300_000]}, 413, "input[1]: 300000 ids, but at most 262144"),
    "rows": ({"model": "embed", "input": ["a"] * 2049}, 413, "input: 2049 rows, but at most 2048"),
    "deep": (b'{"model": "embed", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, ""),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_is_named_in_openais_shape(gateway, case):
    body, status, words = BAD[case]
    async with gateway() as app:
        answer = await app.post("/v1/embeddings", body)
        assert answer.status == status, answer.body
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert words in error["message"]
        assert (await app.post("/v1/embeddings", {"model": "embed", "input": "a"})).status == 200


async def test_cohere_embed(gateway, fake):
    async with gateway() as app:
        body = {"model": "embed", "input_type": "search_query", "texts": ["abc", LONG]}
        answer = await app.post("/v2/embed", body | {"embedding_types": ["float", "ubinary", "base64"]})
        found = answer.json()
        assert found["embeddings"]["float"] == [fake.vector("abc").tolist(), fake.vector(LONG).tolist()]
        assert found["embeddings"]["ubinary"] == [[129], [129]]
        assert base64.b64decode(found["embeddings"]["base64"][0]) == fake.vector("abc").tobytes()
        assert found["meta"]["billed_units"]["input_tokens"] == 63
        assert (found["id"], found["texts"]) == (answer.headers["x-request-id"], ["abc", LONG])
        sent = app.wires["one:1"].requests
        assert sorted(one.parameters["output"] for one in sent) == ["float32", "ubinary"]
        assert {one.parameters["input_type"] for one in sent} == {"query"}


async def test_cohere_inputs_and_errors(gateway):
    async with gateway() as app:
        inputs = [{"content": [{"type": "text", "text": "abc"}]}]
        common = {"model": "embed", "input_type": "clustering"}
        assert (await app.post("/v2/embed", common | {"inputs": inputs})).json()["texts"] == ["abc"]
        both = await app.post("/v2/embed", common | {"inputs": inputs, "texts": ["a"]})
        assert (both.status, both.json()) == (400, {"message": "texts: exactly one of texts and inputs is needed"})
        failing = {"embedding_types": ["float", "ubinary"], "truncate": "NONE", "texts": ["a", LONG]}
        long = await app.post("/v2/embed", common | failing)
        assert (long.status, "texts[1]: 61 tokens" in long.json()["message"]) == (400, True)


async def test_rerank_in_three_shapes(gateway):
    documents = ["the longest of all", "ab", "abc"]
    async with gateway() as app:
        cohere = await app.post("/v2/rerank", {"model": "rerank", "query": "q", "documents": documents, "top_n": 2})
        assert [one["index"] for one in cohere.json()["results"]] == [1, 2]
        body = {"query": "q", "documents": ["abcd", {"text": "ab"}], "return_documents": True}
        jina = (await app.post("/v1/rerank", body)).json()
        assert [(one["index"], one["document"]["text"]) for one in jina["results"]] == [(1, "ab"), (0, "abcd")]
        assert (jina["model"], jina["usage"]["total_tokens"]) == ("rerank", 4)
        tei = await app.post("/rerank", {"query": "q", "texts": documents, "return_text": True, "raw_scores": True})
        assert [(one["index"], one["text"]) for one in tei.json()] == [(1, "ab"), (2, "abc"), (0, documents[0])]
        sent = app.wires["one:1"].requests
        assert [one.parameters["activation"] for one in sent] == ["sigmoid", "sigmoid", "none"]
        assert (await app.post("/rerank", {"query": "q"})).json()["error_type"] == "Validation"


@pytest.mark.parametrize(
    ("path", "field"), [("/v2/rerank", "documents"), ("/v1/rerank", "documents"), ("/rerank", "texts")]
)
async def test_a_query_that_would_be_sent_too_often(gateway, path, field):
    query = "ü" * (1 << 19)  # a MiB
    async with gateway() as app:
        body = {"query": query, "model": "rerank"}
        answer = await app.post(path, body | {field: ["a"] * 65})
        message = f"query: 1048576 bytes for each of 65 {field}, but at most 67108864 in all"
        assert (answer.status, message in answer.body.decode()) == (413, True)
        assert app.wires["one:1"].requests == []
        assert (await app.post(path, body | {field: ["a"] * 64})).status == 200


async def test_tei(gateway, fake):
    async with gateway() as app:
        for path in ("/embed", "/"):
            answer = await app.post(path, {"inputs": "abc"})
            assert answer.json() == [fake.vector("abc").tolist()]
        sparse = await app.post("/embed_sparse", {"inputs": ["a", "b"]})
        assert sparse.json() == [[{"index": 1, "value": 0.5}, {"index": 7, "value": 0.25}]] * 2
        one = await app.post("/predict", {"inputs": "abcdef"})
        assert one.json() == [{"score": 0.75, "label": "long"}, {"score": 0.25, "label": "short"}]
        several = await app.post("/predict", {"inputs": [["abcdef"], ["a"]], "parameters": {"top_k": 1}})
        assert [row[0]["label"] for row in several.json()] == ["long", "short"]
        long = await app.post("/embed", {"inputs": ["a", LONG]})
        assert (long.status, long.json()["error_type"]) == (400, "Validation")
        assert "inputs[1]: 61 tokens" in long.json()["error"]
        assert (await app.post("/embed", {"inputs": ["a", LONG], "truncate": True})).status == 200
        assert (await app.post("/tokenize", {"inputs": "a"})).status == 501
        assert (await app.get("/info")).json()["models"] == {
            "embed": "embed",
            "rerank": "rerank",
            "classify": "classify",
        }


async def test_models_and_aliases(gateway):
    async with gateway(aliases={"text-embedding-3-small": "embed"}) as app:
        listed = (await app.get("/v1/models")).json()["data"]
        assert [one["id"] for one in listed] == ["embed", "rerank", "classify", "text-embedding-3-small"]
        answer = await app.post("/v1/embeddings", {"model": "text-embedding-3-small", "input": "a"})
        assert (answer.status, answer.json()["model"]) == (200, "text-embedding-3-small")


async def test_one_model(gateway):
    async with gateway(aliases={"a/b": "embed"}) as app:
        listed = (await app.get("/v1/models")).json()["data"]
        assert [(await app.get(f"/v1/models/{one['id']}")).json() for one in listed] == listed
        missing = await app.get("/v1/models/gpt")
        assert (missing.status, missing.json()["error"]["code"]) == (404, "model_not_found")


TEXT = "some words"
NULLS = [
    ("/v1/embeddings", {"model": "embed", "input": TEXT}, ["encoding_format", "dimensions", "truncate", "workload"]),
    ("/v2/embed", {"model": "embed", "input_type": "clustering", "texts": [TEXT]}, ["truncate", "priority"]),
    ("/v2/rerank", {"model": "rerank", "query": "q", "documents": [TEXT]}, ["top_n", "priority"]),
    (
        "/v1/rerank",
        {"query": "q", "documents": [TEXT]},
        ["model", "return_documents", "return_text", "raw_scores", "truncate", "truncation_direction"],
    ),
    ("/embed", {"inputs": TEXT}, ["normalize", "truncate", "truncation_direction", "encoding_format", "dimensions"]),
    ("/predict", {"inputs": TEXT}, ["truncate", "truncation_direction", "raw_scores", "parameters"]),
]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (["a", "b"], "inputs: pairs of texts cannot be labelled"),
        ([["a"], "b"], "inputs: pairs of texts"),
        ([["a"], ["b", "c"]], "inputs[1]: 2 strings"),
        ([["a"], []], "inputs[1]: 0 strings"),
        ([], "inputs: there is no text"),
    ],
)
async def test_texts_to_label_are_no_pairs(gateway, inputs, words):
    """As text-embeddings-inference reads them: two strings in a list are a pair."""
    async with gateway() as app:
        answer = await app.post("/predict", {"inputs": inputs})
        assert (answer.status, words in answer.json()["error"]) == (400, True), answer.body


async def test_one_text_in_a_list_is_labelled_as_one(gateway):
    async with gateway() as app:
        alone, in_a_list = [(await app.post("/predict", {"inputs": one})).json() for one in ("abcdef", ["abcdef"])]
        assert alone == in_a_list
        assert (await app.post("/predict", {"inputs": [["abcdef"]]})).json() == [alone]


@pytest.mark.parametrize(("path", "body", "names"), NULLS)
async def test_null_is_the_default(gateway, path, body, names):
    async with gateway() as app:
        headers = [(b"x-request-id", b"same")]
        plain = await app.post(path, body, headers)
        nulls = await app.post(path, body | dict.fromkeys(names), headers)
        assert (nulls.status, nulls.json()) == (200, plain.json())
        first, second = app.wires["one:1"].requests
        assert first.parameters == second.parameters


async def test_more_fields_of_a_document_are_not_read(gateway):
    async with gateway() as app:
        body = {"query": "q", "documents": [{"text": "ab", "title": 7}], "return_documents": True}
        found = (await app.post("/v1/rerank", body)).json()
        assert found["results"][0]["document"] == {"text": "ab"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/rerank", {"query": "q", "documents": ["a", LONG], "truncate": False}, "documents[1]"),
        ("/rerank", {"query": "q", "texts": ["a", {}], "truncate": False}, "texts[1]"),
        ("/rerank", {"query": "q", "texts": ["a", LONG], "truncate": False}, "texts[1]"),
        (
            "/v2/embed",
            {
                "model": "embed",
                "input_type": "clustering",
                "truncate": "NONE",
                "inputs": [{"content": [{"type": "text", "text": LONG}]}],
            },
            "inputs[0]",
        ),
    ],
)
async def test_an_error_names_the_field_of_the_request(gateway, path, body, field):
    async with gateway() as app:
        answer = await app.post(path, body)
        assert (answer.status, f"{field}: " in answer.body.decode()) == (400, True), answer.body


async def test_large_requests_are_cut_by_tokens_spread_and_joined_in_order(gateway, fake):
    texts = [f"text {number} " + "x" * (number % 40) for number in range(500)]
    async with gateway(replicas=("one:1", "two:2", "three:3"), chunk_tokens=300, bulk_tokens=300) as app:
        answer = await app.post("/v1/embeddings", {"model": "embed", "input": texts})
        assert vectors_of(answer).tolist() == [fake.vector(text).tolist() for text in texts]
        sent = [wire.requests for wire in app.wires.values()]
        assert all(sent)
        assert sorted(row for requests in sent for one in requests for row in one.rows) == list(range(500))
        assert max(len(one.rows) for requests in sent for one in requests) < 100
        assert {one.parameters["workload"] for requests in sent for one in requests} == {"bulk"}


async def test_the_error_of_a_late_chunk_names_the_callers_row(gateway):
    texts = ["some words"] * 400
    texts[389] = LONG
    async with gateway(chunk_tokens=100) as app:
        answer = await app.post("/v1/embeddings", {"model": "embed", "input": texts})
        assert (answer.status, "input[389]: 61 tokens" in answer.json()["error"]["message"]) == (400, True)


async def test_keys(gateway, tmp_path):
    (tmp_path / "keys").write_text("the-right-key\n")
    async with gateway(api_keys_file=str(tmp_path / "keys")) as app:
        body = {"model": "embed", "input": "a"}
        closed = await app.post("/v1/embeddings", body)
        assert (closed.status, closed.json()["error"]["code"]) == (401, "invalid_api_key")
        assert closed.headers["www-authenticate"] == "Bearer"
        assert (await app.post("/v1/embeddings", body, [(b"authorization", b"Bearer wrong")])).status == 401
        assert (await app.post("/", {"inputs": "a"})).status == 401
        assert (await app.get("/metrics")).status == 401
        assert (await app.get("/health")).status == 200
        assert (await app.get("/")).status == 200
        assert (await app.post("/v1/embeddings", body, [(b"authorization", b"Bearer the-right-key")])).status == 200


async def test_a_body_that_is_too_large(gateway):
    body = json.dumps({"model": "embed", "input": "a" * 2000}).encode()
    async with gateway(max_body_bytes=1000) as app:
        announced = await app.post("/v1/embeddings", body)
        assert (announced.status, "1000 bytes" in announced.json()["error"]["message"]) == (413, True)
        in_chunks = await app.post("/v1/embeddings", b"", chunks=[body[:500], body[500:1001], body[1001:]])
        assert in_chunks.status == 413
        assert (await app.post("/v1/embeddings", b"", chunks=[b'{"model": "embed",', b'"input": "a"}'])).status == 200


async def test_a_body_that_does_not_come(gateway):
    async with gateway() as app:
        answer = await app.call("POST", "/v1/embeddings", [(b"x-request-timeout", b"0.1")], [])
        assert answer.status == 408


async def test_a_body_has_a_time_of_its_own(gateway):
    async with gateway(body_timeout_s=0.1) as app:
        answer = await app.call("POST", "/v1/embeddings", [], [])
        assert (answer.status, answer.headers["connection"]) == (408, "close")


async def test_a_body_that_stops_is_not_kept_with_its_error():
    """Errors know the frames that they come from, and live until garbage is collected."""
    pieces = [b"a" * 1000, b"b"]
    first, known = pieces[0], sys.getrefcount(pieces[0])

    async def receive():
        if not pieces:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": pieces.pop(0), "more_body": True}

    call = Call("id", asyncio.get_running_loop().time() + 60)
    with pytest.raises(ApiError) as caught:
        await endpoint._body(receive, call, 0.05)
    assert caught.value.status == 408
    assert sys.getrefcount(first) == known - 1  # that of the list


async def test_bodies_that_do_not_come_hold_no_place(gateway):
    async with gateway(max_requests=2) as app:
        slow = [asyncio.create_task(app.call("POST", "/v1/embeddings", [], [])) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert (await app.post("/v1/embeddings", {"model": "embed", "input": "a"})).status == 200
        for one in slow:
            one.cancel()
        assert {(await one).status for one in slow} == {503}


async def test_too_many_requests(gateway):
    async with gateway(requests_per_s=1.0) as app:
        body = {"model": "embed", "input": "a"}
        answers = [await app.post("/v1/embeddings", body) for _ in range(4)]
        assert [one.status for one in answers] == [200, 200, 429, 429]
        assert answers[-1].headers["retry-after"] == "1"
        assert (await app.get("/health")).status == 200


async def test_too_many_requests_at_once(gateway):
    go_on = asyncio.Event()

    async def wait(wire, request, is_probe):
        if not is_probe:
            await go_on.wait()

    async with gateway(wait, max_requests=2) as app:
        body = {"model": "embed", "input": "a"}
        waiting = [asyncio.create_task(app.post("/v1/embeddings", body)) for _ in range(2)]
        await asyncio.sleep(0.01)
        refused = await app.post("/v1/embeddings", body)
        assert (refused.status, "retry-after" in refused.headers) == (429, True)
        go_on.set()
        assert [(await one).status for one in waiting] == [200, 200]
        assert (await app.post("/v1/embeddings", body)).status == 200


async def test_bulk_that_waits_does_not_hold_a_query_up(gateway):
    go_on = asyncio.Event()

    async def hold_bulk(wire, request, is_probe):
        if not is_probe and request.parameters.get("workload") == "bulk":
            await go_on.wait()

    async with gateway(hold_bulk, chunk_tokens=500, bulk_tokens=500, query_tokens=100) as app:
        bulk = asyncio.create_task(app.post("/v1/embeddings", {"model": "embed", "input": ["some words here"] * 1000}))
        await asyncio.sleep(0.05)
        assert (await app.post("/v1/embeddings", {"model": "embed", "input": "a"})).status == 200
        replica = app.gateway.pool.replicas[0]
        assert 0 < replica.outstanding_bulk <= 500
        assert not bulk.done()
        go_on.set()
        assert (await bulk).status == 200


async def test_chunks_of_somebody_who_has_gone_are_not_sent(gateway):
    go_on = asyncio.Event()

    async def hold(wire, request, is_probe):
        if not is_probe:
            await go_on.wait()

    body = json.dumps({"model": "embed", "input": ["some words of a text"] * 1000}).encode()
    async with gateway(hold, chunk_tokens=500, bulk_tokens=1000) as app:
        answer = await app.call("POST", "/v1/embeddings", [], [body, None])
        assert answer.status == 499
        go_on.set()
        await asyncio.sleep(0.05)
        sent = app.wires["one:1"].requests
        assert 0 < len(sent) <= 3
        assert app.gateway.pool.replicas[0].outstanding_tokens == 0


async def test_ids_traces_and_deadlines_reach_the_server(gateway):
    headers = [(b"x-request-id", b"mine-7"), (b"traceparent", TRACE), (b"x-request-timeout", b"5")]
    async with gateway() as app:
        answer = await app.post("/v1/embeddings", {"model": "embed", "input": "a"}, headers)
        assert answer.headers["x-request-id"] == "mine-7"
        assert {part.split(";")[0] for part in answer.headers["server-timing"].split(", ")} == {
            "parse", "wait", "engine", "encode"
        }  # fmt: skip
        wire = app.wires["one:1"]
        assert wire.ids == ["mine-7"]
        assert wire.requests[0].context == {"traceparent": TRACE.decode()}
        assert 4000 < wire.requests[0].parameters["deadline_ms"] <= 5000
        bad = await app.post("/v1/embeddings", {"model": "embed", "input": "a"}, [(b"x-request-timeout", b"soon")])
        assert (bad.status, "X-Request-Timeout" in bad.json()["error"]["message"]) == (400, True)


async def test_a_request_whose_time_is_over(gateway):
    async def hang(wire, request, is_probe):
        if not is_probe:
            await asyncio.Event().wait()

    async with gateway(hang) as app:
        headers = [(b"x-request-timeout", b"0.1")]
        answer = await app.post("/v1/embeddings", {"model": "embed", "input": "a"}, headers)
        assert (answer.status, answer.json()["error"]["code"]) == (504, "timeout")


async def test_the_log_has_no_texts(gateway, caplog):
    caplog.set_level(logging.INFO, "lazuli_client.gateway")
    secret = "swordfish"
    async with gateway() as app:
        await app.post("/v1/embeddings", {"model": "embed", "input": [secret]}, [(b"x-request-id", b"mine")])
        await app.post("/v1/embeddings", {"model": secret, "input": [secret], "truncate": secret})
        await app.post("/rerank", {"query": secret, "texts": [secret], secret: 1})
        await app.get(f"/{secret}")
    lines = [json.loads(one.message) for one in caplog.records if one.name.endswith("access")]
    assert secret not in caplog.text
    assert [(one["path"], one["status"]) for one in lines] == [
        ("/v1/embeddings", 200), ("/v1/embeddings", 400), ("/rerank", 400), ("other", 404),
    ]  # fmt: skip
    assert (lines[0]["request_id"], lines[0]["rows"], lines[0]["tokens"]) == ("mine", 1, 2)


@pytest.mark.parametrize(("path", "word"), [("/v1/embeddings", "stopping"), ("/embed", "Unhealthy")])
async def test_what_is_given_up_at_the_end_is_told_to_come_again(gateway, path, word):
    async def hang(wire, request, is_probe):
        if not is_probe:
            await asyncio.Event().wait()

    async with gateway(hang) as app:
        body = {"model": "embed", "input": "a"} if path == "/v1/embeddings" else {"inputs": "a"}
        waiting = asyncio.create_task(app.post(path, body))
        await asyncio.sleep(0.05)
        waiting.cancel()
        answer = await waiting
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert word in answer.body.decode()


async def test_a_fault_of_the_gateway_is_logged_and_not_told(gateway, caplog):
    async def break_down(wire, request, is_probe):
        if not is_probe:
            raise ZeroDivisionError("inner secret")

    async with gateway(break_down) as app:
        answer = await app.post("/v1/embeddings", {"model": "embed", "input": "a"})
        assert (answer.status, "secret" in answer.body.decode()) == (500, False)
        assert "inner secret" in caplog.text


async def test_cors_is_off_unless_an_origin_is_given(gateway):
    origin = [(b"origin", b"https://app.example")]
    async with gateway() as app:
        assert "access-control-allow-origin" not in (await app.get("/health", origin)).headers
    async with gateway(cors_origins=("https://app.example",)) as app:
        answer = await app.get("/health", origin)
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        other = await app.get("/health", [(b"origin", b"https://evil.example")])
        assert "access-control-allow-origin" not in other.headers


async def test_unknown_paths_and_methods(gateway):
    async with gateway() as app:
        assert (await app.get("/v1/nothing")).json()["error"]["message"] == "Not Found"
        wrong = await app.get("/v1/embeddings")
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")


async def test_health_and_metrics(gateway):
    async with gateway() as app:
        await app.post("/v1/embeddings", {"model": "embed", "input": ["a", "b"]})
        await app.get("/somewhere/else")
        assert (await app.get("/health")).json() == {
            "status": "ok",
            "servers_ready": 1,
            "servers": 1,
            "models": {name: {"servers_ready": 1} for name in ("embed", "rerank", "classify")},
        }
        text = (await app.get("/metrics")).body.decode()
        for line in (
            'lazuli_gateway_requests_total{path="/v1/embeddings",status="200"} 1.0',
            'lazuli_gateway_requests_total{path="other",status="404"} 1.0',
            "lazuli_gateway_rows_total 2.0",
            'lazuli_gateway_server_up{server="one:1"} 1.0',
            'lazuli_gateway_server_model_up{model="rerank",server="one:1"} 1.0',
            'lazuli_gateway_server_outstanding_tokens{server="one:1"} 0.0',
        ):
            assert line in text
        app.gateway.pool.replicas[0].take_out("it burns")
        assert (await app.get("/health")).status == 503


async def test_health_of_each_model(gateway):
    async def rerank_is_broken(wire, request, is_probe):
        if request is not None and request.model == "rerank":
            raise ServerError("the device failed")

    async with gateway(rerank_is_broken, queue_s=0.1, aliases={"ranker": "rerank"}) as app:
        answer = await app.get("/health")
        assert (answer.status, answer.json()["status"]) == (200, "some models have no server")
        assert answer.json()["models"]["rerank"] == {"servers_ready": 0}
        states = {name: await app.get("/health", query=f"model={name}") for name in ("embed", "rerank", "ranker", "x")}
        assert {name: one.status for name, one in states.items()} == {
            "embed": 200, "rerank": 503, "ranker": 503, "x": 404
        }  # fmt: skip
        refused = await app.post("/rerank", {"query": "q", "texts": ["a"]})
        assert (refused.status, "the device failed" in refused.json()["error"]) == (503, True)
        assert (await app.post("/v1/embeddings", {"model": "embed", "input": "a"})).status == 200


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("Request for unknown model: 'classify' has no available versions"),
        ServerError("INTERNAL"),
        UnsupportedError("no metadata"),
        InvalidInputError("a bad name"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("from_the_start", [True, False])
async def test_a_model_that_is_unloaded_takes_no_other_with_it(gateway, error, from_the_start):
    is_away = from_the_start

    async def classify_is_away(wire, request, is_probe):
        if is_away and (request.model if request else wire.asked) == "classify":
            raise error

    async def ready(app, count):
        async with asyncio.timeout(30):
            while len(app.gateway.pool.fit("classify")) != count:
                await asyncio.sleep(0.02)

    async with gateway(classify_is_away, queue_s=0.1) as app:
        if not from_the_start:
            await ready(app, 1)
            is_away = True
        await ready(app, 0)
        await asyncio.sleep(0.3)  # some rounds of the watch
        health = await app.get("/health")
        ready_servers = {name: one["servers_ready"] for name, one in health.json()["models"].items()}
        assert (health.status, ready_servers) == (200, {"embed": 1, "rerank": 1, "classify": 0})
        assert (await app.post("/v1/embeddings", {"model": "embed", "input": "a"})).status == 200
        is_away = False
        await ready(app, 1)
        assert (await app.post("/predict", {"inputs": "a"})).status == 200


async def test_a_server_without_any_loaded_model_is_out(gateway):
    async def all_are_away(wire, request, is_probe):
        raise UnavailableError("Request for unknown model: 'x' has no available versions")

    async with gateway(all_are_away, queue_s=0.1) as app:
        assert (await app.get("/health")).status == 503
        assert "no available versions" in app.gateway.pool.replicas[0].reason


@pytest.mark.parametrize("models", [("embed", "nobody"), ("nobody", "embed")])
async def test_a_model_that_was_named_and_never_found_is_not_ready(gateway, models):
    async with gateway(models=models) as app:
        health = (await app.get("/health")).json()
        assert health["models"] == {"embed": {"servers_ready": 1}, "nobody": {"servers_ready": 0}}
        assert health["status"] == "some models have no server"


@pytest.mark.parametrize("models", [("dense", "splade"), ("splade", "dense")])
async def test_each_kind_of_vectors_has_its_model(gateway, fake, models):
    async with gateway(models=models) as app:
        assert (await app.post("/embed", {"inputs": "abc"})).json() == [fake.vector("abc").tolist()]
        sparse = await app.post("/embed_sparse", {"inputs": "abc"})
        assert sparse.json() == [[{"index": 1, "value": 0.5}, {"index": 7, "value": 0.25}]]
        assert [one.model for one in app.wires["one:1"].requests] == ["dense", "splade"]


async def test_without_a_model_for_it_the_first_says_what_is_wrong(gateway):
    async with gateway(models=("dense",)) as app:
        answer = await app.post("/embed_sparse", {"inputs": "a"})
        assert (answer.status, "only dense vectors" in answer.json()["error"]) == (400, True)
    async with gateway(models=("splade",)) as app:
        answer = await app.post("/embed", {"inputs": "a"})
        assert (answer.status, "no dense vectors" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("encoding", [b"gzip", b"BR"])
async def test_a_compressed_body_is_415(gateway, encoding):
    async with gateway() as app:
        body = {"model": "embed", "input": "a"}
        answer = await app.post("/v1/embeddings", body, [(b"content-encoding", encoding)])
        assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
        assert encoding.decode() in answer.json()["error"]["message"]
        assert (await app.post("/v1/embeddings", body, [(b"content-encoding", b"identity")])).status == 200


async def test_raw_scores_of_labels_are_refused_by_name(gateway):
    async with gateway() as app:
        answer = await app.post("/predict", {"inputs": "a", "raw_scores": True})
        assert (answer.status, "raw_scores: " in answer.json()["error"]) == (400, True)
        assert "does not have" in answer.json()["error"]


TOO_LONG = 'text[0]: 61 tokens, but at most 50 are allowed; shorten it or pass truncate="end"'
NOT_TRAINED = "dimensions: 2, but cut vectors are not known; pass force_dimensions=true to cut them all the same"


@pytest.mark.parametrize(
    ("path", "body", "said", "words"),
    [
        ("/v1/embeddings", {"model": "embed", "input": "a"}, TOO_LONG, 'shorten it or pass truncate="end"'),
        (
            "/v1/embeddings",
            {"model": "embed", "input": "a"},
            NOT_TRAINED,
            "pass force_dimensions=true to cut them all the same",
        ),
        ("/embed", {"inputs": "a"}, TOO_LONG, "shorten it or pass truncate: true"),
        ("/embed", {"inputs": "a"}, NOT_TRAINED, "cut vectors are not known"),
        ("/rerank", {"query": "q", "texts": ["a"]}, TOO_LONG, "shorten it or pass truncate: true"),
        ("/predict", {"inputs": "a"}, TOO_LONG, "shorten it or pass truncate: true"),
        ("/v2/embed", {"model": "embed", "input_type": "clustering", "texts": ["a"]}, TOO_LONG, 'pass truncate: "END"'),
        ("/v2/embed", {"model": "embed", "input_type": "clustering", "texts": ["a"]}, NOT_TRAINED, "are not known"),
        ("/v2/rerank", {"model": "rerank", "query": "q", "documents": ["a"]}, TOO_LONG, "shorten it"),
    ],
)
async def test_advice_is_in_words_of_the_api(gateway, path, body, said, words):
    async def refuse(wire, request, is_probe):
        if not is_probe:
            raise InvalidInputError(said)

    async with gateway(refuse) as app:
        answer = await app.post(path, body)
        found = answer.json()
        message = found.get("message") or found["error"]
        message = message if isinstance(message, str) else message["message"]
        assert (answer.status, message.endswith(words)) == (400, True), message


async def test_without_a_server_requests_are_told_to_come_again(gateway):
    async def nobody(wire, request, is_probe):
        raise ConnectionFailedError("refused")

    async with gateway(nobody, queue_s=0.1) as app:
        answer = await app.post("/v1/embeddings", {"model": "embed", "input": "a"})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_the_openapi_document_describes_every_endpoint(gateway):
    import msgspec

    from lazuli_client.gateway.app import ENDPOINTS

    async with gateway() as app:
        document = (await app.get("/openapi.json")).json()
        for endpoint in ENDPOINTS:
            operation = document["paths"][endpoint.path]["post"]
            msgspec.convert(operation["requestBody"]["content"]["application/json"]["example"], endpoint.body)
            answer = await app.post(endpoint.path, endpoint.example)
            assert answer.status in (200, 501)
        for path in ("/", "/docs", "/page/index.js", "/page/docs.js", "/page/style.css"):
            page = await app.get(path)
            assert page.status == 200
            assert b"http://" not in page.body.replace(b"http://www.w3.org", b"")
            assert b"https://" not in page.body
