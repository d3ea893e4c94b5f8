"""A connection that stays open, and one that the server closed."""

import socket
import threading
import time
from contextlib import closing

import pytest

from clients import keep_alive
from clients.keep_alive import KeepAlive

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_requests_share_a_connection_until_the_server_closes_it():
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = threading.Event()

        def serve():
            for requests in (2, 1):
                connection, _ = listener.accept()
                accepted.append(connection)
                with connection:
                    for _ in range(requests):
                        connection.recv(10_000)
                        connection.sendall(_ANSWER)
                closed.set()

        thread = threading.Thread(target=serve)
        thread.start()
        with closing(KeepAlive(f"127.0.0.1:{listener.getsockname()[1]}")) as client:
            assert client.get_json("/one") == {}
            assert client.post("/two", b"", {})[0] == b"{}"
            assert len(accepted) == 1
            assert closed.wait(5)
            assert client.get_json("/three") == {}
            assert len(accepted) == 2
        thread.join()


def test_a_server_that_never_answers_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(keep_alive, "CHEAP_TIMEOUT_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        closing(KeepAlive(f"127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.2)) as client,
    ):
        with pytest.raises(TimeoutError, match=r"^GET /health: no answer within 0\.1 s$"):
            client.get("/health")
        with pytest.raises(TimeoutError, match=r"^POST /embed: no answer within 0\.2 s$"):
            client.post("/embed", b"", {})


def test_each_request_has_its_own_patience_on_one_connection(monkeypatch):
    monkeypatch.setattr(keep_alive, "CHEAP_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(_ANSWER)
                connection.recv(10_000)
                time.sleep(0.3)
                connection.sendall(_ANSWER)

        thread = threading.Thread(target=serve)
        thread.start()
        with closing(KeepAlive(f"127.0.0.1:{listener.getsockname()[1]}")) as client:
            assert client.get("/cheap") == b"{}"
            assert client.post("/work", b"", {})[0] == b"{}"
        thread.join()
