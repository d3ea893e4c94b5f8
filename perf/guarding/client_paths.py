"""The hot paths of the client that run in Python: from texts to messages, and from messages to vectors.

Returns paths by name. Nothing is sent.
"""

import json
from functools import partial
from typing import Any

import numpy as np
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2

from guarding.work_counter import HotPath, HotPaths, Run
from lazuli_client import codec
from lazuli_client.embeddings import from_outputs
from lazuli_client.options import EmbedOptions
from lazuli_client.request import EmbedRequest, text_request, text_requests
from lazuli_client.settings import Settings

_DIMENSION = 384
_MANY = 64


def client_paths() -> HotPaths:
    """All of them."""
    paths: dict[str, HotPath] = {"client: 1,000 texts cut into requests": _prepare_cut}
    for count, name in ((1, "1 text"), (_MANY, "64 texts")):
        paths |= {
            f"client: {name} to gRPC": partial(_prepare_to_grpc, count),
            f"client: {name} to HTTP": partial(_prepare_to_http, count),
            f"client: {name} from gRPC": partial(_prepare_from_grpc, count),
            f"client: {name} from HTTP": partial(_prepare_from_http, count),
            f"client: {name} from a stream": partial(_prepare_from_stream, count),
        }
    return paths


def _texts(count: int) -> list[str]:
    return [f"passage {number}: " + "a few words of a text " * 5 for number in range(count)]


def _request(count: int) -> EmbedRequest:
    parameters = EmbedOptions(truncate="end", dimensions=_DIMENSION).parameters()
    return text_request("embed", _texts(count), parameters, range(count))


def _prepare_cut() -> Run:
    texts, settings, options = _texts(1000), Settings(), EmbedOptions(truncate="end")
    return lambda: list(text_requests(settings, [texts], options))


def _prepare_to_grpc(count: int) -> Run:
    request = _request(count)
    return lambda: codec.to_grpc(request, "1").SerializeToString()


def _prepare_to_http(count: int) -> Run:
    request = _request(count)
    return lambda: triton_http.InferenceServerClient.generate_request_body(codec.to_http(request))


def _outputs(count: int) -> dict[str, tuple[str, np.ndarray]]:
    """Name to Triton's name of the type, and values."""
    return {
        "embedding": ("FP32", np.ones((count, _DIMENSION), dtype=np.float32)),
        "token_count": ("INT32", np.full((count, 1), 40, dtype=np.int32)),
        "truncated": ("BOOL", np.zeros((count, 1), dtype=np.bool_)),
    }


def _message(count: int) -> Any:
    message = service_pb2.ModelInferResponse(model_name="embed", id="1")
    for name, (datatype, values) in _outputs(count).items():
        message.outputs.add(name=name, datatype=datatype, shape=values.shape)
        message.raw_output_contents.append(values.tobytes())
    return message


def _prepare_from_grpc(count: int) -> Run:
    content = _message(count).SerializeToString()

    def run() -> object:
        return from_outputs(codec.from_grpc(service_pb2.ModelInferResponse.FromString(content)), count)

    return run


def _prepare_from_stream(count: int) -> Run:
    message = service_pb2.ModelStreamInferResponse(infer_response=_message(count))
    message.infer_response.parameters["triton_final_response"].bool_param = True
    content = message.SerializeToString()
    return lambda: codec.from_grpc_stream(service_pb2.ModelStreamInferResponse.FromString(content))


def _prepare_from_http(count: int) -> Run:
    outputs = _outputs(count)
    described = [
        {
            "name": name,
            "datatype": datatype,
            "shape": list(values.shape),
            "parameters": {"binary_data_size": values.nbytes},
        }
        for name, (datatype, values) in outputs.items()
    ]
    header = json.dumps({"model_name": "embed", "outputs": described}).encode()
    body = header + b"".join(values.tobytes() for _, values in outputs.values())

    def run() -> object:
        result = triton_http.InferenceServerClient.parse_response_body(body, header_length=len(header))
        return from_outputs(codec.from_http(result), count)

    return run
