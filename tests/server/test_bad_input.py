"""Bad input gets an error that names it, at every door, and the next request still works."""

import struct
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from .conftest import assert_same_vectors
from .wire import DOORS, HttpError, grpc_infer, make_input, post

INVALID = ("StatusCode.INVALID_ARGUMENT", "400", 400)


@pytest.fixture(autouse=True)
def next_request_works(server, reference):
    yield
    assert_same_vectors(grpc_infer(server, reference[0][:2])[0], reference[1][:2])


def refusal(call):
    """The message of the INVALID_ARG error that the call must raise."""
    with pytest.raises((InferenceServerException, HttpError)) as caught:
        call()
    error = caught.value
    status = error.status if isinstance(error, HttpError) else error.status()
    if status is not None:  # tritonclient gives none for errors that arrive on a stream
        assert status in INVALID, error
    return error.text if isinstance(error, HttpError) else error.message()


LONG = "word " * 300
# What is sent -> what the message must name.
BAD_TEXTS = {
    "too-long-first": ([LONG, "short"], {}, ["text[0]", "302", "256"]),
    "too-long-last": (["short", LONG], {}, ["text[1]", "302", "256"]),
    "unknown-option": (["a"], {"pooling": "max"}, ["pooling", "truncate"]),
    "truncate-value": (["a"], {"truncate": "middle"}, ["truncate", "middle", "none, end, start"]),
    "dimensions-too-many": (["a"], {"dimensions": 385}, ["dimensions", "385", "384"]),
    "dimensions-zero": (["a"], {"dimensions": 0}, ["dimensions", "positive", "0"]),
    "dimensions-negative": (["a"], {"dimensions": -3}, ["dimensions", "-3"]),
    "dimensions-text": (["a"], {"dimensions": "64"}, ["dimensions", "64"]),
    "dimensions-bool": (["a"], {"dimensions": True}, ["dimensions", "true"]),
    "dimensions-not-matryoshka": (["a"], {"dimensions": 64}, ["dimensions: 64", "force_dimensions=true"]),
    "output-unknown": (["a"], {"output": "int4"}, ["output", "int4", "ubinary"]),
    "output-twice": (["a"], {"output": "int8,binary"}, ["output: int8 and binary", "only one"]),
    "output-without-calibration": (["a"], {"output": "int8"}, ["output: int8", "lazuli calibrate"]),
    "output-of-other-models": (["a"], {"output": "sparse"}, ["output", "sparse"]),
    "bits-that-do-not-fill-bytes": (
        ["a"],
        {"output": "ubinary", "dimensions": 12, "force_dimensions": True},
        ["output: ubinary", "12"],
    ),
    "normalize-text": (["a"], {"normalize": "yes"}, ["normalize", "yes"]),
    "prompt-unknown": (["a"], {"prompt_name": "nope"}, ["prompt_name", "nope"]),
    "input-type-unknown": (["a"], {"input_type": "passage"}, ["input_type", "query, document", "passage"]),
    "prompt-number": (["a"], {"prompt_name": 7}, ["prompt_name", "7"]),
    "prompt-and-instruction": (
        ["a"],
        {"prompt_name": "x", "instruction": "y"},
        ["prompt_name", "instruction"],
    ),
    "too-many-rows": (["a"] * 1025, {}, ["1024"]),
}


@pytest.mark.parametrize("door", DOORS, ids=list(DOORS))
@pytest.mark.parametrize("case", BAD_TEXTS, ids=list(BAD_TEXTS))
def test_bad_text_or_option(server, door, case):
    texts, options, words = BAD_TEXTS[case]
    message = refusal(lambda: DOORS[door](server, texts, **options))
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize("door", ["grpc-infer", "grpc-stream", "http-infer"])
def test_invalid_utf8(server, door):
    message = refusal(lambda: DOORS[door](server, [b"fine", b"ab\xff"]))
    assert "text[1]" in message
    assert "0xff at offset 2" in message


@pytest.mark.parametrize("model", ["embed", "embed_stream"])
def test_invalid_utf8_in_json(server, model):
    message = refusal(lambda: post(server, f"/v2/models/{model}/generate", b'{"text": "ab\xff"}'))
    assert "0xff at offset 2" in message


@pytest.mark.parametrize("model", ["embed", "embed_stream"])
def test_no_text(server, model):
    assert "text" in refusal(lambda: post(server, f"/v2/models/{model}/generate", {"text": []}))
    assert "text" in refusal(lambda: post(server, f"/v2/models/{model}/generate", {}))


@pytest.mark.parametrize("value", [{"a": 1}, [1], None])
def test_option_of_a_type_that_triton_refuses(server, value):
    assert "dimensions" in refusal(
        lambda: post(server, "/v2/models/embed/generate", {"text": "a", "dimensions": value})
    )


IDS = np.array([[101, 2003, 102], [101, 102, 0]], dtype=np.int32)
MASK = np.array([[1, 1, 1], [1, 1, 0]], dtype=np.int8)


def changed(array, row, column, value):
    copy = array.copy()
    copy[row, column] = value
    return copy


BAD_TOKENS = {
    "hole-in-mask": (IDS, changed(MASK, 0, 1, 0), ["attention_mask[0][1]", "contiguous"]),
    "all-zero-mask": (IDS, changed(MASK, 1, slice(None), 0), ["attention_mask[1]", "all zero"]),
    "mask-value": (IDS, changed(MASK, 0, 2, 3), ["attention_mask[0][2]", "3"]),
    "first-chunk-marked": (IDS, changed(MASK, 1, 0, 2), ["attention_mask[1]", "2 at its first token"]),
    "id-too-large": (changed(IDS, 0, 1, 30522), MASK, ["input_ids[0][1]", "30522", "30521"]),
    "id-negative": (changed(IDS, 1, 0, -1), MASK, ["input_ids[1][0]", "-1"]),
    "shapes-differ": (IDS, MASK[:, :2], ["attention_mask", "[2, 2]", "[2, 3]"]),
    "no-token": (IDS[:, :0], MASK[:, :0], ["input_ids", "[2, 0]"]),
    "too-long": (
        np.full((1, 513), 101, np.int32),
        np.ones((1, 513), np.int8),
        ["input_ids[0]", "513", "512"],
    ),
    "rows-differ": (IDS, MASK[:1], ["batch size"]),
    "ids-int64": (IDS.astype(np.int64), MASK, ["input_ids", "INT64", "INT32"]),
    "mask-int32": (IDS, MASK.astype(np.int32), ["attention_mask", "INT32", "INT8"]),
    "mask-missing": (IDS, None, ["attention_mask"]),
    "ids-one-dimensional": (IDS[0], MASK, ["input_ids"]),
}
_DATATYPES = {np.int64: "INT64", np.int32: "INT32", np.int8: "INT8"}


@pytest.mark.parametrize("module", [triton_grpc, triton_http], ids=["grpc", "http"])
@pytest.mark.parametrize("case", BAD_TOKENS, ids=list(BAD_TOKENS))
def test_bad_tokens(server, module, case):
    ids, mask, words = BAD_TOKENS[case]
    tensors = {"input_ids": ids, "attention_mask": mask}
    inputs = [
        make_input(module, name, np.ascontiguousarray(values), _DATATYPES[values.dtype.type])
        for name, values in tensors.items()
        if values is not None
    ]
    address = server.grpc if module is triton_grpc else server.http
    with module.InferenceServerClient(address) as client:
        message = refusal(lambda: client.infer("embedding", inputs))
    assert [word for word in words if word not in message] == []


def test_text_of_another_type_or_shape(server):
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        wrong_type = make_input(triton_grpc, "text", np.zeros((1, 1), np.float32), "FP32")
        assert "BYTES" in refusal(lambda: client.infer("embed", [wrong_type]))
        wrong_shape = make_input(triton_grpc, "text", np.array([[b"a", b"b"]], dtype=object), "BYTES")
        assert "[1,2]" in refusal(lambda: client.infer("embed", [wrong_shape]))


def test_the_stream_goes_on_after_an_error(server, reference):
    """A bad request on a stream does not end the stream for the others."""
    import queue

    from .wire import text_input

    answers = queue.Queue()
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for texts in ([LONG], [reference[0][0]]):
            client.async_stream_infer("embed_stream", [text_input(triton_grpc, texts)])
        seen = [answers.get(timeout=30) for _ in range(2)]
    errors = [error for _, error in seen if error is not None]
    results = [result for result, error in seen if error is None]
    assert "text[0]" in errors[0].message()
    assert_same_vectors(results[0].as_numpy("embedding"), reference[1][:1])


def test_a_large_form_encoded_body_does_not_end_the_server(server):
    """`curl -d` and urllib send a form's content type; Triton 24.10 copies such a body to the stack."""
    text = "a " * 4_000_000
    assert "text" in refusal(lambda: post(server, "/v2/models/embed/generate", {"text": text}))
    assert post(server, "/v2/models/embed/generate", {"text": text, "truncate": "end"})["truncated"]


def test_deeply_nested_json_does_not_end_the_server(server):
    depth = 200_000
    body = b'{"text":' + b"[" * depth + b"]" * depth + b"}"
    with pytest.raises(HttpError):
        post(server, "/v2/models/embed/generate", body)


def test_broken_strings_harm_nobody_else(server, reference):
    """Of a call with several requests, Triton 24.10 would fail all."""
    texts, expected = reference
    broken = service_pb2.ModelInferRequest(model_name="embed")
    tensor = broken.inputs.add(name="text", datatype="BYTES")
    tensor.shape.extend([1, 1])
    broken.raw_input_contents.append(struct.pack("<I", 100) + b"short")  # of 100 bytes, 5 are there

    with grpc.insecure_channel(server.grpc) as channel, ThreadPoolExecutor(12) as pool:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def break_it(_):
            with pytest.raises(grpc.RpcError) as caught:
                stub.ModelInfer(broken, timeout=60)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            return caught.value.details()

        def embed(row):
            return grpc_infer(server, [texts[row]])[0]

        calls = [(pool.submit(break_it, row), pool.submit(embed, row)) for row in range(200)]
        assert all("incomplete string data for inference input 'text'" in bad.result() for bad, _ in calls)
        assert_same_vectors(np.concatenate([good.result() for _, good in calls]), expected[:200])
