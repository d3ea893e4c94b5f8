"""The benchmarks are scripts and no package: their folder is put on the path, and this one for what tests share."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[3] / "perf"), str(Path(__file__).parent)]

from fake_server import fake_server  # noqa: E402


@pytest.fixture
def server():
    """A server with the routes of other systems."""
    with fake_server() as server:
        yield server


@pytest.fixture
def other_server():
    """One more."""
    with fake_server() as server:
        yield server
