import http.client
import json
import socket

import pytest

from lazuli.launch.health_server import HealthServer, State


def ask(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body else None
    finally:
        connection.close()


READY = {"ready": True, "phase": "serving", "restarts": 0, "faults": {}}


@pytest.mark.parametrize(
    ("state", "status", "answer"),
    [
        (State("serving"), 200, READY),
        (
            State("serving", faults={"embed": "timed out"}),
            503,
            {**READY, "ready": False, "faults": {"embed": "timed out"}},
        ),
        (State("starting"), 503, {**READY, "ready": False, "phase": "starting"}),
        (State("restarting", restarts=3), 503, {**READY, "ready": False, "phase": "restarting", "restarts": 3}),
        (State("stopping"), 503, {**READY, "ready": False, "phase": "stopping"}),
    ],
    ids=lambda value: value.phase if isinstance(value, State) else "",
)
def test_ready_only_where_every_model_answers(state, status, answer):
    with HealthServer("127.0.0.1", 0, lambda: state) as server:
        assert ask(server.port, "/ready") == (status, answer)
        assert ask(server.port, "/ready", "HEAD") == (status, None)
        assert ask(server.port, "/live") == (200, {"live": True})


def test_other_pages_there_are_none():
    with HealthServer("127.0.0.1", 0, lambda: State("serving")) as server:
        assert ask(server.port, "/metrics")[0] == 404


def test_who_connects_and_says_nothing_holds_up_nobody():
    with (
        HealthServer("127.0.0.1", 0, lambda: State("serving")) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        assert ask(server.port, "/ready")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        ask(server.port, "/live")
