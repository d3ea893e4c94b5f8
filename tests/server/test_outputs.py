"""Vectors of other types on the wire, each under a name and a type of its own, and the ranges of int8 and uint8."""

import json
import shutil

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from sentence_transformers.util.quantization import quantize_embeddings
from typer.testing import CliRunner

from lazuli.checkpoint import resolve_checkpoint
from lazuli.cli import app
from lazuli.launch.options import ServeOptions
from lazuli.launch.running import running_server
from lazuli_client import LazuliClient

from .wire import grpc_infer, make_input, post, stream_parts, text_input

NAMES = {
    "float16": ("embedding_float16", np.float16, 384),
    "binary": ("embedding_binary", np.int8, 48),
    "ubinary": ("embedding_ubinary", np.uint8, 48),
}
INTEGERS = {"int8": np.int8, "uint8": np.uint8}


def near(output, values, expected):
    """Whether encoded vectors are those of a reference, but for what float32 rounds here and there."""
    if output == "float16":
        return np.abs(values.astype(np.float32) - expected).max() < 1e-3
    bits = np.unpackbits((values.astype(np.int16) + (128 if output == "binary" else 0)).astype(np.uint8), axis=1)
    wrong = bits != (expected > 0)
    return bool((np.abs(expected[wrong]) < 1e-5).all())


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("output", NAMES)
def test_infer(server, reference, protocol, output):
    texts, expected = reference[0][:20], reference[1][:20]
    module, address = (triton_grpc, server.grpc) if protocol == "grpc" else (triton_http, server.http)
    with module.InferenceServerClient(address) as client:
        result = client.infer("embed", [text_input(module, texts)], parameters={"output": output})
    name, dtype, columns = NAMES[output]
    values = result.as_numpy(name)
    assert (values.dtype, values.shape) == (dtype, (20, columns))
    assert near(output, values, expected)
    answer = result.get_response()
    named = [entry.name for entry in answer.outputs] if protocol == "grpc" else [e["name"] for e in answer["outputs"]]
    assert sorted(named) == sorted([name, "token_count", "truncated"])


@pytest.mark.parametrize("output", NAMES)
def test_a_stream(server, reference, output):
    texts, expected = reference[0][:20], reference[1][:20]
    (parts,) = stream_parts(server, [(texts, {"output": output})])
    name, dtype, columns = NAMES[output]
    values = np.zeros((20, columns), dtype)
    for part in parts:
        assert sorted(entry.name for entry in part.get_response().outputs) == sorted([name, "index", "token_count"])
        values[part.as_numpy("index")[:, 0]] = part.as_numpy(name)
    assert near(output, values, expected)


@pytest.mark.parametrize("output", ["binary", "ubinary"])
def test_generate(server, reference, output):
    answer = post(server, "/v2/models/embed/generate", {"text": reference[0][:2], "output": output})
    values = np.array(answer[f"embedding_{output}"]).reshape(2, 48)
    assert near(output, values, reference[1][:2])
    assert "embedding" not in answer


def test_tokens(server):
    ids, mask = np.array([[101, 2003, 102]], np.int32), np.ones((1, 3), np.int8)
    inputs = [
        make_input(triton_grpc, "input_ids", ids, "INT32"),
        make_input(triton_grpc, "attention_mask", mask, "INT8"),
    ]
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        plain = client.infer("embedding", inputs).as_numpy("embedding")
        bits = client.infer("embedding", inputs, parameters={"output": "ubinary"}).as_numpy("embedding_ubinary")
    assert bits.tolist() == np.packbits(plain > 0, axis=1).tolist()


def test_requests_of_all_kinds_at_once(server, reference):
    texts, expected = reference[0][:30], reference[1][:30]
    outputs = ["float32", "float16", "binary", "ubinary"] * 15
    answers = stream_parts(server, [([texts[place % 30]], {"output": output}) for place, output in enumerate(outputs)])
    for place, (output, parts) in enumerate(zip(outputs, answers, strict=True)):
        (part,) = parts
        row = expected[place % 30 : place % 30 + 1]
        if output == "float32":
            np.testing.assert_allclose(part.as_numpy("embedding"), row, atol=1e-5)
        else:
            assert near(output, part.as_numpy(NAMES[output][0]), row)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory, reference):
    folder = tmp_path_factory.mktemp("calibrated") / "minilm"
    shutil.copytree(resolve_checkpoint("all-MiniLM-L6-v2"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"matryoshka_dimensions": [128, 384]}))
    texts = folder.parent / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in reference[0]))
    words = ["calibrate", str(folder), "--texts", str(texts), "--dimensions", "128", "--device", "cpu"]
    result = CliRunner().invoke(app, [*words, "--dtype", "float32"])
    assert result.exit_code == 0, result.output
    with running_server(ServeOptions(checkpoint=str(folder), device="cpu")) as server:
        yield server


@pytest.mark.parametrize("dimensions", [None, 128])
@pytest.mark.parametrize("output", INTEGERS)
def test_integers_as_sentence_transformers(calibrated, reference, output, dimensions):
    texts, expected = reference
    if dimensions is not None:
        cut = expected[:, :dimensions]
        expected = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    quantized = quantize_embeddings(expected, output, calibration_embeddings=expected)
    with LazuliClient(calibrated.grpc) as client:
        result = client.embed(texts, output=output, dimensions=dimensions)
        parts = list(client.embed_iter(texts, output=output, dimensions=dimensions))
    assert result.embeddings.dtype == INTEGERS[output]
    streamed = np.empty_like(quantized)
    for part in parts:
        streamed[part.indices] = part.embeddings
    for values in (result.embeddings, streamed):
        steps = np.abs(values.astype(np.int16) - quantized.astype(np.int16))
        assert steps.max() <= 1
        assert steps.mean() < 0.01


def test_a_list_of_dimensions_is_kept_to(calibrated):
    with pytest.raises(triton_grpc.InferenceServerException, match="made to be cut to 128, 384"):
        grpc_infer(calibrated, ["a"], dimensions=64)
