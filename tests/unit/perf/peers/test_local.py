"""Systems in process: loaded once, by whoever comes first."""

from typing import ClassVar

import pytest

from peers.contract import Answer
from peers.local import LocalEndpoint, close_models
from texts.rows import Rows


class Model:
    loaded: ClassVar[list["Model"]] = []

    def __init__(self, name):
        self.name, self.closed = name, False
        self.loaded.append(self)

    def embed(self, rows):
        return Answer(self.name, len(rows.texts))

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def nothing_loaded():
    Model.loaded = []
    yield
    close_models()


def test_equal_endpoints_share_a_model():
    connections = [LocalEndpoint(Model, (name,)).connect() for name in ("a", "a", "b")]
    assert [model.name for model in Model.loaded] == ["a", "b"]
    assert [connection.send(connection.prepare(Rows(["x"], 3)))[0] for connection in connections] == ["a", "a", "b"]


def test_a_model_outlives_its_connections_and_ends_with_the_process():
    LocalEndpoint(Model, ("a",)).connect().close()
    assert not Model.loaded[0].closed
    close_models()
    assert Model.loaded[0].closed
    LocalEndpoint(Model, ("a",)).connect()
    assert len(Model.loaded) == 2
