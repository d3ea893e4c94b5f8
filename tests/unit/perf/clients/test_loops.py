"""Clients, on connections that only count."""

import time

import numpy as np
import pytest

from clients.load import Load
from clients.loops import Arrivals, Clients, run_clients
from peers.contract import Answer
from texts.lengths import exactly
from texts.rows import RowSpec

SPEC = RowSpec(tuple(f"word{letter}" for letter in "abcdefghij"), 1)


class Connection:
    def __init__(self, delay_s=0.0, rows=None):
        self.texts, self.delay_s, self.rows = [], delay_s, rows

    def prepare(self, rows):
        return rows

    def send(self, prepared):
        self.texts += prepared.texts
        time.sleep(self.delay_s)
        return Answer(np.zeros((self.rows or len(prepared.texts), 4), np.float32))


def run(load, connections, rate=None):
    sources = [SPEC.open(seed) for seed in range(len(connections))]
    return run_clients([Clients(load, sources, connections, rate, 0)], time.perf_counter)[0]


def test_each_client_of_a_closed_loop_sends_its_rounds_of_new_texts():
    connections = [Connection(), Connection()]
    spans = run(Load(None, exactly(5), batch=3, rounds=4), connections)
    assert [len(client) for client in spans] == [4, 4]
    texts = connections[0].texts + connections[1].texts
    assert len(texts) == len(set(texts)) == 24
    assert {span.tokens for client in spans for span in client} == {15}
    assert all(span.due == span.sent < span.answered for client in spans for span in client)


def test_too_few_vectors_are_an_error():
    with pytest.raises(RuntimeError, match="2 vectors for 3 texts"):
        run(Load(None, exactly(5), batch=3, rounds=1), [Connection(rows=2)])


def test_a_late_answer_delays_what_comes_after_it_and_that_shows():
    load = Load(None, exactly(5), seconds=0.3, rate=100.0)
    (spans,) = run(load, [Connection(delay_s=0.05)], rate=100.0)
    assert len(spans) > 15
    waits = [span.answered - span.due for span in spans]
    assert waits[-1] > 0.4  # it could answer 20 a second, not 100
    assert waits == sorted(waits) or waits[-1] > 5 * waits[0]


def test_arrivals_come_in_order_as_often_as_asked_for():
    times = list(Arrivals(100.0, 50.0, seed=3))
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= 100
    assert 4500 < len(times) < 5500
    gaps = np.diff(times)
    # Of a Poisson process the gaps spread as widely as they are long.
    assert np.std(gaps) == pytest.approx(np.mean(gaps), rel=0.1)
    assert list(Arrivals(100.0, 50.0, seed=4)) != times
