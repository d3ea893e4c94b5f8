"""A server with short queues under too much load: refusals come at once, admitted requests are answered."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server

from .conftest import assert_same_vectors
from .wire import DOORS, HttpError, grpc_infer

REPOSITORY = Path(__file__).parents[2] / "model_repository"
CLIENTS = 48


@pytest.fixture(scope="module")
def small_server(tmp_path_factory):
    """The committed repository with room for little."""
    repository = tmp_path_factory.mktemp("small") / "model_repository"
    shutil.copytree(REPOSITORY, repository)
    for model in ("embedding", "embedding_stream"):
        config = repository / model / "config.pbtxt"
        text = config.read_text()
        for name, limit in {"max_waiting_tokens": 24576, "max_queued_tokens": 256, "token_budget": 256}.items():
            old = f'"{name}", value: {{ string_value: "auto"'
            assert text.count(old) == 1
            text = text.replace(old, old.replace("auto", str(limit)))
        config.write_text(text)
    with running_server(ServeOptions(model_repositories=(repository,), door=Door.BOTH)) as running:
        yield running


def is_unavailable(error):
    """Triton 24.10 says 400 for every error at `generate`, and gives no code on a stream: there the text must do."""
    if isinstance(error, HttpError):
        return error.status in (503, 400, None) and "Exceeds maximum queue size" in error.text
    codes = ("StatusCode.UNAVAILABLE", "503", None)
    return error.status() in codes and "Exceeds maximum queue size" in error.message()


@pytest.mark.parametrize("door", DOORS, ids=list(DOORS))
def test_overload_is_refused_and_the_rest_answered(small_server, reference, door):
    texts, expected = reference
    texts, expected = texts[:60], expected[:60]
    order, start = [], threading.Barrier(CLIENTS)

    def client(number):
        start.wait()
        try:
            vectors, _ = DOORS[door](small_server, texts)
        except (InferenceServerException, HttpError) as error:
            if not is_unavailable(error):
                raise
            order.append("refused")
            return
        order.append("answered")
        assert_same_vectors(vectors, expected)

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(client, range(CLIENTS)))
    assert order.count("refused") > 0
    assert order.count("answered") >= 3
    # At once: nobody who is refused waits for those who are served.
    assert order.index("refused") < len(order) - 1 - order[::-1].index("answered")
    assert_same_vectors(grpc_infer(small_server, texts)[0], expected)


def test_a_text_longer_than_the_budget_runs_alone(small_server, sentence_transformer):
    """TEI#723: 256 tokens fill the budget exactly; pre-tokenised rows may be longer than it."""
    import tritonclient.grpc as triton_grpc

    from .wire import make_input

    ids, mask = np.full((3, 512), 2003, dtype=np.int32), np.ones((3, 512), dtype=np.int8)
    inputs = [
        make_input(triton_grpc, "input_ids", ids, "INT32"),
        make_input(triton_grpc, "attention_mask", mask, "INT8"),
    ]
    with triton_grpc.InferenceServerClient(small_server.grpc) as client:
        vectors = client.infer("embedding", inputs, client_timeout=60).as_numpy("embedding")
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
