"""The gRPC stream, against a server in this process that answers in parts."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from lazuli_client.errors import InvalidInputError
from peers.lazuli_server import LazuliEndpoint
from texts.rows import Rows

D = 2


class Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers the last row first, each in a part of its own; then the mark of the end."""

    def __init__(self):
        self.models = []

    def ServerLive(self, request, context):  # noqa: N802
        return service_pb2.ServerLiveResponse(live=True)

    def ModelStreamInfer(self, requests, context):  # noqa: N802
        for request in requests:
            self.models.append(request.model_name)
            assert request.parameters["triton_enable_empty_final_response"].bool_param
            count = request.inputs[0].shape[0]
            if count > 3:
                yield part(error="text[3]: no more", final=True)
                continue
            for row in reversed(range(count)):
                yield part(row)
            yield part(final=True)


def part(row=None, *, error="", final=False):
    inner = service_pb2.ModelInferResponse()
    inner.parameters["triton_final_response"].bool_param = final
    if row is not None:
        values = {"embedding": np.full((1, D), row, np.float32)}
        values |= {name: np.array([[number]], np.int32) for name, number in (("index", row), ("token_count", 10))}
        for name, value in values.items():
            datatype = "FP32" if name == "embedding" else "INT32"
            inner.outputs.add(name=name, datatype=datatype, shape=value.shape)
            inner.raw_output_contents.append(value.tobytes())
    return service_pb2.ModelStreamInferResponse(error_message=error, infer_response=inner)


@pytest.fixture
def live():
    server = grpc.server(ThreadPoolExecutor(2))
    servicer = Servicer()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(None).wait()


def test_parts_are_put_in_the_order_of_the_texts(live):
    with closing(LazuliEndpoint("stream", live.address).connect()) as connection:
        connection.ping()
        for count in (3, 1, 2):
            answer = connection.send(connection.prepare(Rows(["x"] * count, 0)))
            assert answer.vectors[:, 0].tolist() == list(range(count))
            assert answer.tokens == 10 * count
    assert live.models == ["embed_stream"] * 3


def test_an_error_is_raised_and_the_stream_goes_on(live):
    with closing(LazuliEndpoint("stream", live.address).connect()) as connection:
        with pytest.raises(InvalidInputError, match="no more"):
            connection.send(connection.prepare(Rows(["x"] * 4, 0)))
        assert len(connection.send(connection.prepare(Rows(["x"], 0))).vectors) == 1


def test_ids_go_to_the_engine(live):
    with closing(LazuliEndpoint("stream", live.address).connect()) as connection:
        connection.send(connection.prepare(Rows(["x"], 3, [np.array([101, 7, 102], np.int32)])))
    assert live.models == ["embedding_stream"]
