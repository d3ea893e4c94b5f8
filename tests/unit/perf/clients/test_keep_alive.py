"""A connection that stays open, and one that the server closed."""

import socket
import threading
from contextlib import closing

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
