"""Who may change the server: only those with the key."""

import os
import time
import urllib.error
import urllib.request

import pytest

from lazuli.launch.repository import built_in_repository

from .wire import grpc_infer

MODEL = "/v2/repository/models/embed_stream"
BUILT_IN = built_in_repository()


def admin(server, path, key=None):
    request = urllib.request.Request(f"http://{server.http}{path}", data=b"{}", method="POST")
    if key:
        request.add_header("admin-key", key)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status


@pytest.mark.parametrize("key", [None, "wrong"])
@pytest.mark.parametrize("path", [f"{MODEL}/unload", f"{MODEL}/load", "/v2/repository/index", "/v2/logging"])
def test_closed_without_the_key(server, path, key):
    with pytest.raises(urllib.error.HTTPError) as caught:
        admin(server, path, key)
    with caught.value as error:
        assert error.code == 403


def test_the_key_opens_loading(server):
    assert admin(server, f"{MODEL}/unload", server.admin_key) == 200
    assert grpc_infer(server, ["the other door is open"])[0].shape == (1, 384)
    assert admin(server, f"{MODEL}/load", server.admin_key) == 200


def test_a_model_that_changed_is_reloaded_beside_its_old_process(server):
    """Both publish metrics for a moment, which must not be the same ones: 24.10 would free them twice."""
    for _ in range(3):
        for step in ("embedding_stream", "tokenizer"):
            os.utime(BUILT_IN / step / "1" / "model.py")
        assert admin(server, f"{MODEL}/load", server.admin_key) == 200
        for _ in range(30):
            assert grpc_infer(server, ["and serves on"])[0].shape == (1, 384)
            time.sleep(0.05)
