"""Who may change the server: only those with the key."""

import urllib.error
import urllib.request

import pytest

from .wire import grpc_infer

MODEL = "/v2/repository/models/embed_stream"


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
