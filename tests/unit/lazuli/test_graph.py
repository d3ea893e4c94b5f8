from dataclasses import asdict

import pytest

from lazuli.buckets import Bucket, BucketTable
from lazuli.graph import Action, GraphCache

EAGER, CAPTURE, REPLAY = Action.EAGER, Action.CAPTURE, Action.REPLAY
TABLE = BucketTable(max_tokens=4096, max_sequences=512, max_seqlen=4096)


def make(capture="lazy", max_graphs=10, max_bytes=1000):
    return GraphCache(TABLE, capture=capture, max_graphs=max_graphs, max_bytes=max_bytes)


def text(tokens):
    return Bucket(tokens, 1, tokens)


def own(tokens):
    return TABLE.find(text(tokens))


def store(cache, tokens, own_bytes=1, pool_bytes=0):
    cache.store(own(tokens), f"graph {own(tokens).num_tokens}", own_bytes, pool_bytes)


def hit(cache, tokens):
    """What a stepper does with a batch of one text."""
    action, sizes = cache.choose(text(tokens))
    if action is CAPTURE:
        cache.store(sizes, f"graph {sizes.num_tokens}", 1, 0)
        cache.count(REPLAY)
    elif action is REPLAY:
        assert cache.get(sizes) == f"graph {sizes.num_tokens}"
    return action


def counted(cache):
    return {name: value for name, value in asdict(cache.snapshot()).items() if value}


class TestLazy:
    def test_eager_then_capture_then_replay(self):
        cache = make()
        assert [hit(cache, 100) for _ in range(5)] == [EAGER, CAPTURE, REPLAY, REPLAY, REPLAY]
        expected = {"missed": 1, "captured": 1, "replayed": 4, "real_tokens": 500, "padded_tokens": 140}
        assert counted(cache) == expected | {"graphs": 1, "graph_bytes": 1}

    def test_each_bucket_by_itself(self):
        cache = make()
        assert [hit(cache, tokens) for tokens in (10, 100, 1000)] == [EAGER] * 3
        assert [hit(cache, tokens) for tokens in (10, 100, 1000)] == [CAPTURE] * 3
        assert [hit(cache, tokens) for tokens in (9, 99, 999)] == [REPLAY] * 3

    def test_eager_runs_are_padded_to_the_bucket_that_would_be_captured(self):
        assert make().choose(text(100)) == (EAGER, own(100))

    def test_an_unstored_capture_is_tried_again(self):
        cache = make()
        cache.choose(text(100))
        assert [cache.choose(text(100))[0] for _ in range(2)] == [CAPTURE] * 2

    def test_no_graph_stands_in(self):
        cache = make()
        store(cache, 200)
        assert hit(cache, 100) is EAGER


class TestIdle:
    def test_eager_until_somebody_captures(self):
        cache = make("idle")
        assert [hit(cache, 100) for _ in range(3)] == [EAGER] * 3
        assert cache.next_waiting() == own(100)
        store(cache, 100)
        assert cache.next_waiting() is None
        assert hit(cache, 100) is REPLAY

    def test_a_larger_graph_stands_in(self):
        cache = make("idle")
        store(cache, 200)
        store(cache, 400)
        assert cache.choose(text(100)) == (REPLAY, own(200))
        assert cache.next_waiting() == own(100)
        expected = {"stood_in": 1, "captured": 2, "real_tokens": 100, "padded_tokens": own(200).num_tokens - 100}
        assert counted(cache) == expected | {"graphs": 2, "graph_bytes": 2}

    @pytest.mark.parametrize(("tokens", "other", "allowed"), [(100, 900, True), (100, 2048, False), (600, 2048, True)])
    def test_unless_it_is_far_larger(self, tokens, other, allowed):
        cache = make("idle")
        store(cache, other)
        assert cache.choose(text(tokens)) == ((REPLAY, own(other)) if allowed else (EAGER, own(tokens)))

    def test_a_smaller_one_does_not(self):
        cache = make("idle")
        store(cache, 64)
        assert hit(cache, 65) is EAGER

    def test_its_own_graph_is_preferred(self):
        cache = make("idle")
        store(cache, 200)
        store(cache, 100)
        assert cache.choose(text(100)) == (REPLAY, own(100))

    def test_the_one_asked_for_most_often_is_next(self):
        cache = make("idle")
        for tokens in (10, 1000, 1000, 100):
            hit(cache, tokens)
        assert cache.next_waiting() == own(1000)
        assert cache.next_waiting(2) == own(1000)
        assert cache.next_waiting(3) is None
        cache.ask_for(own(10), 5)
        assert cache.next_waiting(3) == own(10)

    def test_what_is_there_need_not_be_asked_for(self):
        cache = make("idle")
        store(cache, 10)
        cache.ask_for(own(10))
        cache.bar(own(20))
        cache.ask_for(own(20))
        assert cache.next_waiting() is None


class TestEager:
    @pytest.mark.parametrize("capture", ["idle", "lazy"])
    def test_above_the_last_bucket_nothing_is_padded(self, capture):
        cache = make(capture)
        sizes = Bucket(4097, 3, 4000)
        assert [cache.choose(sizes) for _ in range(3)] == [(EAGER, sizes)] * 3
        assert counted(cache) == {"above": 3, "real_tokens": 3 * 4097}
        assert not cache.hits
        assert cache.next_waiting() is None

    def test_off_is_always_eager_and_exact(self):
        cache = make("off")
        assert [cache.choose(text(100)) for _ in range(3)] == [(EAGER, text(100))] * 3

    def test_a_new_limit(self):
        cache = make("idle")
        store(cache, 2000)
        store(cache, 1000)
        for tokens in (600, 3000):
            hit(cache, tokens)
        cache.limit(1024)
        assert (len(cache), cache.counters.graph_bytes) == (0, 0)
        assert cache.next_waiting() == own(600)
        assert cache.choose(text(2000)) == (EAGER, text(2000))


class TestEviction:
    def test_the_least_recently_used_goes_and_is_captured_again(self):
        cache = make(max_graphs=2)
        for tokens in (10, 10, 100, 100):
            hit(cache, tokens)
        assert hit(cache, 10) is REPLAY  # now 100 is the oldest
        assert [hit(cache, 1000) for _ in range(2)] == [EAGER, CAPTURE]
        assert len(cache) == 2
        assert hit(cache, 10) is REPLAY
        assert [hit(cache, 100) for _ in range(3)] == [EAGER, CAPTURE, REPLAY]
        assert hit(cache, 1000) is EAGER  # it was the oldest when 100 came back
        assert (cache.counters.captured, cache.counters.evicted, len(cache)) == (4, 2, 2)

    def test_a_stand_in_is_used_too(self):
        cache = make("idle", max_graphs=2)
        store(cache, 200)
        store(cache, 1000)
        hit(cache, 150)
        store(cache, 2000)
        assert own(200) in cache
        assert own(1000) not in cache

    def test_memory_is_what_graphs_share_and_what_is_their_own(self):
        cache = make(max_bytes=100)
        store(cache, 10, own_bytes=10, pool_bytes=70)
        store(cache, 100, own_bytes=20, pool_bytes=70)
        assert (len(cache), cache.counters.graph_bytes) == (2, 100)
        store(cache, 1000, own_bytes=15, pool_bytes=70)
        assert own(10) not in cache
        assert own(100) not in cache
        assert (len(cache), cache.counters.graph_bytes, cache.counters.evicted) == (1, 85, 2)

    def test_one_whose_pool_is_too_large_is_barred_and_the_others_wait_for_another_pool(self):
        cache = make("idle", max_bytes=100)
        store(cache, 10)
        store(cache, 1000, own_bytes=10, pool_bytes=95)
        assert len(cache) == 0
        assert cache.counters.graph_bytes == 0
        assert cache.next_waiting() == own(10)
        assert (cache.counters.failed, cache.counters.evicted) == (1, 1)
        store(cache, 10)
        assert hit(cache, 10) is REPLAY
        assert [hit(cache, 1000) for _ in range(3)] == [EAGER] * 3
        assert cache.next_waiting() is None

    @pytest.mark.parametrize(("pool_bytes", "fits"), [(0, True), (99, True), (100, False)])
    def test_whether_a_pool_fits(self, pool_bytes, fits):
        assert make(max_bytes=100).fits(pool_bytes) is fits


class TestBarred:
    @pytest.mark.parametrize("capture", ["idle", "lazy"])
    def test_it_stays_eager_and_the_others_do_not_mind(self, capture):
        cache = make(capture)
        hit(cache, 100)
        cache.bar(own(100))
        assert cache.next_waiting() is None
        assert [hit(cache, 100) for _ in range(3)] == [EAGER] * 3
        assert cache.counters.failed == 1
        assert hit(cache, 1000) is EAGER
        store(cache, 1000)
        assert hit(cache, 1000) is REPLAY

    def test_another_graph_may_stand_in(self):
        cache = make("idle")
        cache.bar(own(100))
        store(cache, 128)
        assert cache.choose(text(100)) == (REPLAY, own(128))


def test_hits_are_of_the_bucket_that_a_batch_should_have():
    cache = make("idle")
    store(cache, 200)
    for tokens in (100, 200, 200, 5000):
        cache.choose(text(tokens))
    assert cache.hits == {own(100): 1, own(200): 2}


def test_a_snapshot_stays_as_it_is():
    cache = make()
    before = cache.snapshot()
    hit(cache, 100)
    assert (before.missed, cache.snapshot().missed) == (0, 1)


def test_what_is_not_there():
    with pytest.raises(KeyError):
        make().get(own(100))
