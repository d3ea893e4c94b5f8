"""Locust users for a live server: people who search, and a job that indexes.

    .venv/bin/locust -f perf/locustfile.py --headless -u 16 -r 8 -t 30s --host http://127.0.0.1:8000

Searchers embed one short text and wait a moment; indexers embed batches of passages without a pause. Every answer is
checked: its shape, and that each vector is of unit length.
Locust's users are gevent's, with which gRPC's own event loop does not go: it talks plain HTTP.
"""

import json
import math
import random

from locust import FastHttpUser, between, constant, task

_WORDS = [
    "river",
    "code",
    "moon",
    "market",
    "garden",
    "engine",
    "letter",
    "music",
    "bridge",
    "winter",
    "story",
    "glass",
    "paper",
    "light",
    "stone",
    "field",
]
_MODEL = "/v2/models/embed/generate"


def _text(num_words: int) -> str:
    return " ".join(random.choices(_WORDS, k=num_words))


class _Embedder(FastHttpUser):
    abstract = True

    def embed(self, name: str, texts: list[str]) -> None:
        """Send one request and check its answer."""
        with self.client.post(
            _MODEL, data=json.dumps({"text": texts, "truncate": "end"}), name=name, catch_response=True
        ) as answer:
            if answer.status_code != 200:
                answer.failure(f"{answer.status_code}: {answer.text[:200]}")
                return
            values = answer.json()["embedding"]
            size, rest = divmod(len(values), len(texts))
            vectors = [values[start : start + size] for start in range(0, len(values), size)]
            if rest or not all(math.isclose(math.hypot(*vector), 1, abs_tol=1e-3) for vector in vectors):
                answer.failure(f"{len(values)} numbers for {len(texts)} texts, or a vector not of unit length")


class Searcher(_Embedder):
    """Someone who types queries."""

    weight = 4
    wait_time = between(0.05, 0.5)

    @task
    def query(self) -> None:
        """One short text."""
        self.embed("query (1 text of 3-12 words)", [_text(random.randint(3, 12))])


class Indexer(_Embedder):
    """A job that embeds passages as quickly as it can."""

    weight = 1
    wait_time = constant(0)

    @task
    def passages(self) -> None:
        """A batch of mixed lengths."""
        self.embed("passages (16 texts of 10-150 words)", [_text(random.randint(10, 150)) for _ in range(16)])
