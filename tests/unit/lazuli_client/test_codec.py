import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from lazuli_client import (
    ConnectionFailedError,
    DeadlineError,
    InvalidInputError,
    ServerError,
    codec,
)
from lazuli_client.request import text_request, token_request

PARAMETERS = {"truncate": "end", "dimensions": 8, "normalize": False}
TEXTS = ["", "a\0b", "größe", "\r\n"]


def test_grpc_request_for_texts():
    message = codec.to_grpc(text_request("embed", TEXTS, PARAMETERS, range(4)), "7")
    assert (message.model_name, message.id) == ("embed", "7")
    assert [(part.name, part.datatype, list(part.shape)) for part in message.inputs] == [("text", "BYTES", [4, 1])]
    assert [raw.decode() for raw in deserialize_bytes_tensor(message.raw_input_contents[0])] == TEXTS
    expected = np.array([text.encode() for text in TEXTS], dtype=np.object_)
    assert message.raw_input_contents[0] == serialize_byte_tensor(expected).item()
    assert message.parameters["truncate"].string_param == "end"
    assert message.parameters["dimensions"].int64_param == 8
    assert message.parameters["normalize"].WhichOneof("parameter_choice") == "bool_param"
    assert "triton_enable_empty_final_response" not in message.parameters


def test_grpc_stream_request_asks_for_its_end():
    message = codec.to_grpc(text_request("embed_stream", ["a"], {}, [0]), "1", stream=True)
    assert message.parameters["triton_enable_empty_final_response"].bool_param


def test_grpc_request_for_tokens():
    message = codec.to_grpc(token_request("embedding", [np.array([5, 6], np.int32)], {}, [0]))
    assert [(part.name, part.datatype) for part in message.inputs] == [
        ("input_ids", "INT32"),
        ("attention_mask", "INT8"),
    ]
    assert message.raw_input_contents[0] == np.array([5, 6], "<i4").tobytes()
    assert message.raw_input_contents[1] == b"\1\1"


def response(**outputs):
    message = service_pb2.ModelInferResponse(id="3")
    types = {"float32": "FP32", "int32": "INT32", "bool": "BOOL"}
    for name, values in outputs.items():
        message.outputs.add(name=name, datatype=types[values.dtype.name], shape=values.shape)
        message.raw_output_contents.append(values.tobytes())
    return message


def test_grpc_outputs():
    outputs = codec.from_grpc(response(embedding=np.ones((2, 3), np.float32), truncated=np.array([[True], [False]])))
    assert outputs["embedding"].tolist() == [[1.0] * 3] * 2
    assert outputs["truncated"].tolist() == [[True], [False]]


def test_grpc_stream_part_end_and_error():
    part = codec.from_grpc_stream(
        service_pb2.ModelStreamInferResponse(infer_response=response(index=np.array([[1]], np.int32)))
    )
    assert (part.request_id, part.is_final, part.error) == ("3", False, None)
    assert part.outputs["index"].tolist() == [[1]]

    message = service_pb2.ModelStreamInferResponse(infer_response=response())
    message.infer_response.parameters["triton_final_response"].bool_param = True
    end = codec.from_grpc_stream(message)
    assert (end.request_id, end.is_final, dict(end.outputs)) == ("3", True, {})

    message.error_message = "text[2]: too long"
    failed = codec.from_grpc_stream(message)
    assert isinstance(failed.error, InvalidInputError)
    assert (failed.request_id, failed.is_final) == ("3", True)


def test_http_request():
    (tensor,) = codec.to_http(text_request("embed", TEXTS, {}, range(4)))
    assert (tensor.name(), tensor.datatype(), tensor.shape()) == ("text", "BYTES", [4, 1])
    assert [raw.decode() for raw in deserialize_bytes_tensor(tensor._get_binary_data())] == TEXTS


@pytest.mark.parametrize(
    ("error", "kind", "match"),
    [
        (TimeoutError(), DeadlineError, "no answer from host:1 within 2.5 s"),
        (ConnectionRefusedError(111, "Connection refused"), ConnectionFailedError, "host:1.*refused"),
        (RuntimeError(), ConnectionFailedError, "RuntimeError"),
        (OSError("\x1b[31m\nred"), ConnectionFailedError, r"\\x1b\[31m red$"),
    ],
)
def test_http_errors(error, kind, match):
    mapped = codec.from_http_error(error, "host:1", 2.5)
    assert type(mapped) is kind
    with pytest.raises(kind, match=match):
        raise mapped


@pytest.mark.parametrize(
    ("is_tls", "hint"), [(True, "perhaps the port does not speak TLS$"), (False, "perhaps the port wants TLS$")]
)
@pytest.mark.parametrize(
    "words", ["[Errno 104] Connection reset by peer", "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF", "Server disconnected"]
)
def test_who_hangs_up_may_not_agree_on_tls(words, is_tls, hint):
    error = codec.from_http_error(OSError(words), "host:1", 2.5, is_tls=is_tls)
    assert type(error) is ConnectionFailedError
    with pytest.raises(ConnectionFailedError, match=hint):
        raise error


def test_an_answer_over_grpc_that_cannot_be_read():
    response = service_pb2.ModelInferResponse()
    response.outputs.add(name="embedding", datatype="FP32", shape=[1, 4])
    response.raw_output_contents.append(b"123")
    with pytest.raises(ServerError, match="cannot be read"):
        codec.from_grpc(response)
