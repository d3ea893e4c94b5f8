"""A small /dev/shm, as containers have it, and a full one: requests get answers or errors, and no harm is left."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from .conftest import assert_same_vectors
from .supervised import Supervised
from .wire import HttpError, grpc_infer, http_generate, http_infer

CLIENTS = 12


def with_shared_memory(size):
    """A command that runs others with a /dev/shm of their own."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$0" "$@"'
    return ["unshare", *user, "--mount", "sh", "-c", script]


def test_too_little_is_refused_at_the_start():
    started = Supervised("--door=unary", wrapper=with_shared_memory("16m"))
    try:
        assert started.process.wait(60) == 1
        started._reader.join()
        assert "/dev/shm has 16 MiB free, but 48 MiB are needed" in "".join(started.lines)
        assert "--shm-size" in "".join(started.lines)
    finally:
        started.end()


@pytest.fixture(scope="module")
def serve():
    """With as much as Docker gives unless told otherwise."""
    started = Supervised("--door=unary", wrapper=with_shared_memory("64m"))
    try:
        started.banner()
        yield started
    finally:
        started.end()


@pytest.fixture(scope="module")
def large(reference):
    """The most rows of a request, short ones, with their vectors."""
    texts, expected = reference
    short = sorted(range(len(texts)), key=lambda row: len(texts[row]))[:16]
    rows = np.resize(short, 1024)
    return [texts[row] for row in rows], expected[rows]


def fill(path):
    """Write until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def outcomes(serve, large, doors):
    """How so many large requests at once end: None, or the error; those that are answered are answered rightly."""

    def client(number):
        try:
            vectors, _ = doors[number % len(doors)](serve, large[0])
        except (InferenceServerException, HttpError) as error:
            return str(error)
        assert_same_vectors(vectors, large[1])
        return None

    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(client, range(CLIENTS)))


def test_many_large_requests_in_what_docker_gives(serve, large):
    assert outcomes(serve, large, [grpc_infer, http_infer]) == [None] * CLIENTS


def test_a_full_one(serve, large):
    """Everybody gets an answer or an error, and once there is room again, answers."""
    filler = Path(f"/proc/{serve.server().pid}/root/dev/shm/filler")
    fill(filler)
    try:
        assert os.statvfs(filler.parent).f_bavail == 0
        found = outcomes(serve, large, [grpc_infer, http_infer, http_generate])
    finally:
        filler.unlink()
    print({error: found.count(error) for error in found}, serve.events("restart"))
    serve.wait_until(True)
    assert outcomes(serve, large, [grpc_infer]) == [None] * CLIENTS
