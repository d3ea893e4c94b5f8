import pytest

from lazuli.graph import Action, Bucket, BucketRule, GraphCache


def rule(token_step=64, max_tokens=8192, max_sequences=512, max_seqlen=512):
    return BucketRule(token_step=token_step, max_tokens=max_tokens, max_sequences=max_sequences, max_seqlen=max_seqlen)


class TestTokens:
    @pytest.mark.parametrize(
        ("num_tokens", "expected"),
        [
            (1, 64),
            (63, 64),
            (64, 64),
            (65, 128),
            (1984, 1984),
            (1985, 2048),
            (2047, 2048),
            (2048, 2048),
            (2049, 2304),
            (2304, 2304),
            (2305, 2560),
            (8191, 8192),
            (8192, 8192),
        ],
    )
    def test_edges(self, num_tokens, expected):
        assert rule().bucket(num_tokens, 1, 1).num_tokens == expected

    def test_larger_batches_run_eagerly(self):
        assert rule().bucket(8193, 1, 1) is None
        assert rule(max_tokens=100).bucket(100, 1, 1).num_tokens == 128
        assert rule(max_tokens=100).bucket(101, 1, 1) is None

    def test_steps_of_one_and_others(self):
        assert rule(token_step=1).bucket(17, 1, 1).num_tokens == 17
        assert rule(token_step=1).bucket(2050, 1, 1).num_tokens == 2052
        assert rule(token_step=100).bucket(101, 1, 1).num_tokens == 200
        assert rule(token_step=100).bucket(2047, 1, 1).num_tokens == 2100
        assert rule(token_step=100).bucket(2048, 1, 1).num_tokens == 2400


class TestSequences:
    @pytest.mark.parametrize(("number", "expected"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (257, 512), (512, 512)])
    def test_powers_of_two(self, number, expected):
        assert rule().bucket(512, number, 1).num_sequences == expected

    def test_no_more_than_there_can_be(self):
        assert rule(max_sequences=100).bucket(512, 65, 1).num_sequences == 100


class TestLongest:
    @pytest.mark.parametrize(
        ("longest", "expected"),
        [(1, 16), (16, 16), (17, 32), (32, 32), (33, 64), (256, 256), (257, 512), (512, 512)],
    )
    def test_powers_of_two_from_sixteen(self, longest, expected):
        assert rule().bucket(512, 1, longest).max_seqlen == expected

    def test_no_more_than_the_model_takes(self):
        assert rule(max_seqlen=300).bucket(512, 1, 257).max_seqlen == 300
        assert rule(max_seqlen=8).bucket(8, 1, 3).max_seqlen == 8


@pytest.mark.parametrize("step", [1, 7, 64, 100])
def test_a_bucket_is_an_upper_bound_and_its_own_bucket(step):
    chosen = rule(token_step=step, max_sequences=48, max_seqlen=500)
    for num_tokens in range(1, 4300, 13):
        num_sequences = 1 + num_tokens % 48
        longest = 1 + num_tokens % 500
        bucket = chosen.bucket(num_tokens, num_sequences, longest)
        assert bucket.num_tokens >= num_tokens
        assert bucket.num_tokens - num_tokens < 4 * step
        assert bucket.num_sequences >= num_sequences
        assert bucket.max_seqlen >= longest
        if bucket.num_tokens % (4 * step) == 0:  # elsewhere the coarser steps may begin in between
            assert chosen.bucket(bucket.num_tokens, bucket.num_sequences, bucket.max_seqlen) == bucket


def bucket(number):
    return Bucket(64 * number, 1, 16)


def hit(cache, key):
    """What a stepper does with a batch of this bucket."""
    action = cache.next_action(key)
    if action is Action.CAPTURE:
        cache.store(key, f"graph {key.num_tokens}")
    elif action is Action.REPLAY:
        assert cache.get(key) == f"graph {key.num_tokens}"
    return action


EAGER, CAPTURE, REPLAY = Action.EAGER, Action.CAPTURE, Action.REPLAY


class TestCache:
    def test_eager_then_capture_then_replay(self):
        cache = GraphCache(4)
        assert [hit(cache, bucket(1)) for _ in range(5)] == [EAGER, CAPTURE, REPLAY, REPLAY, REPLAY]
        assert len(cache) == 1
        assert cache.counters.captured == 1

    def test_each_bucket_by_itself(self):
        cache = GraphCache(4)
        keys = [Bucket(64, 1, 16), Bucket(128, 1, 16), Bucket(64, 2, 16), Bucket(64, 1, 32)]
        assert [hit(cache, key) for key in keys] == [EAGER] * 4
        assert [hit(cache, key) for key in keys] == [CAPTURE] * 4
        assert [hit(cache, key) for key in keys] == [REPLAY] * 4

    def test_no_bucket_is_always_eager(self):
        cache = GraphCache(4)
        assert [cache.next_action(None) for _ in range(3)] == [EAGER] * 3

    def test_zero_graphs_are_always_eager(self):
        cache = GraphCache(0)
        assert [cache.next_action(bucket(1)) for _ in range(3)] == [EAGER] * 3

    def test_an_unstored_capture_is_tried_again(self):
        cache = GraphCache(4)
        cache.next_action(bucket(1))
        assert [cache.next_action(bucket(1)) for _ in range(2)] == [CAPTURE] * 2

    def test_the_least_recently_used_goes_and_is_captured_again_at_its_next_hit(self):
        cache = GraphCache(2)
        for number in (1, 1, 2, 2):
            hit(cache, bucket(number))
        assert hit(cache, bucket(1)) is REPLAY  # now 2 is the oldest
        assert [hit(cache, bucket(3)) for _ in range(2)] == [EAGER, CAPTURE]
        assert len(cache) == 2
        assert cache.counters.evicted == 1
        assert hit(cache, bucket(1)) is REPLAY
        assert hit(cache, bucket(2)) is CAPTURE
        assert hit(cache, bucket(3)) is CAPTURE  # it was the oldest when 2 came back
        assert (cache.counters.captured, cache.counters.evicted, len(cache)) == (5, 3, 2)

    def test_a_barred_bucket_stays_eager_and_the_others_do_not_mind(self):
        cache = GraphCache(4)
        cache.next_action(bucket(1))
        assert cache.next_action(bucket(1)) is CAPTURE
        cache.bar(bucket(1))
        assert [cache.next_action(bucket(1)) for _ in range(3)] == [EAGER] * 3
        assert cache.counters.failed == 1
        assert [hit(cache, bucket(2)) for _ in range(3)] == [EAGER, CAPTURE, REPLAY]

    def test_what_is_not_there(self):
        with pytest.raises(KeyError):
            GraphCache(4).get(bucket(1))
