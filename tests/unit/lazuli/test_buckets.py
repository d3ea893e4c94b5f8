import numpy as np
import pytest

from lazuli.buckets import Bucket, BucketTable, dummy_lengths

BOTH = pytest.mark.parametrize("by_longest", [False, True], ids=["by_sequence", "by_longest"])
LIMITS = [
    (16384, 512, 8192),
    (16384, 512, 32768),
    (8192, 512, 512),
    (16384, 1024, 512),
    (1000, 3, 512),
    (100, 64, 64),
    (16, 1, 16),
    (5, 512, 512),
]


def make(max_tokens=16384, max_sequences=512, max_seqlen=8192, by_longest=False):
    return BucketTable(max_tokens=max_tokens, max_sequences=max_sequences, max_seqlen=max_seqlen, by_longest=by_longest)


def batches(max_tokens, max_sequences, max_seqlen, seed=0, count=4000):
    """Sizes that a batch can have, edges among them."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        tokens = int(rng.integers(1, max_tokens + 1)) if number % 2 else int(max_tokens ** rng.random())
        least = -(-tokens // max_seqlen)
        if least > max_sequences:
            continue
        most = min(tokens, max_sequences)
        choices = (least, most, int(rng.integers(least, most + 1)))
        sequences = choices[number % 3]
        shortest, longest = -(-tokens // sequences), min(max_seqlen, tokens - sequences + 1)
        yield Bucket(tokens, sequences, (shortest, longest, int(rng.integers(shortest, longest + 1)))[number // 3 % 3])


@BOTH
@pytest.mark.parametrize("limits", LIMITS)
def test_every_batch_has_a_bucket_that_holds_it_and_no_cheaper_one_does(limits, by_longest):
    table = make(*limits, by_longest)
    seen = 0
    for sizes in batches(*limits):
        bucket = table.find(sizes)
        assert bucket is not None, sizes
        assert bucket.num_tokens >= sizes.num_tokens
        assert bucket.num_sequences >= sizes.num_sequences
        assert bucket.max_seqlen >= sizes.max_seqlen
        cheaper = [other for other in table.buckets if other.holds(sizes) and table.cost(other) < table.cost(bucket)]
        assert not cheaper
        seen += 1
    assert seen > 500


@BOTH
def test_a_hundred_at_most(by_longest):
    assert len(make(by_longest=by_longest).buckets) <= 100
    assert len(make(max_seqlen=32768, by_longest=by_longest).buckets) <= 100
    assert len(make(max_tokens=8192, max_seqlen=512, by_longest=by_longest).buckets) <= 90


@BOTH
@pytest.mark.parametrize("limits", LIMITS)
def test_a_bucket_is_its_own(limits, by_longest):
    table = make(*limits, by_longest)
    assert len(set(table.buckets)) == len(table.buckets)
    for bucket in table.buckets:
        assert bucket.num_tokens <= limits[0]
        assert bucket.num_sequences <= limits[1]
        assert bucket.max_seqlen <= limits[2]
        assert table.cost(table.find(bucket)) <= table.cost(bucket)


def test_larger_batches_have_none():
    assert make().find(Bucket(16384, 10, 8192)).num_tokens == 16384
    assert make().find(Bucket(16385, 10, 8192)) is None
    assert make(max_tokens=1000).find(Bucket(1000, 1, 1000)).num_tokens == 1000
    assert make(max_tokens=1000).find(Bucket(1001, 1, 1001)) is None


def test_one_text_wastes_at_most_an_eighth_from_128_tokens_on():
    table = make(max_seqlen=16384)
    for tokens in range(128, 16385):
        bucket = table.find(Bucket(tokens, 1, tokens))
        assert bucket.num_tokens - tokens < tokens / 8 + 1, tokens
        # Empty sequences cost at most a program each.
        assert bucket.num_sequences <= max(1, bucket.num_tokens // 256)


def test_one_short_text_wastes_little():
    table = make()
    chosen = {tokens: table.find(Bucket(tokens, 1, tokens)).num_tokens for tokens in range(1, 129)}
    assert sorted(set(chosen.values())) == [16, 32, 48, 64, 96, 128]
    assert all(table.find(Bucket(tokens, 1, tokens)).num_sequences == 1 for tokens in range(1, 129))


def test_queries_of_a_usual_length_waste_at_most_half():
    """Texts of 12 tokens; the cost counts tokens and sequences."""
    table = make()
    for number in range(8, 512):
        sizes = Bucket(12 * number, number, 32)
        assert table.cost(table.find(sizes)) <= 1.5 * table.cost(sizes), number


def test_more_of_anything_never_costs_less():
    table = make()
    for sizes in batches(16384, 512, 8192, seed=1):
        cost = table.cost(table.find(sizes))
        for larger in (
            Bucket(sizes.num_tokens + 7, sizes.num_sequences, sizes.max_seqlen),
            Bucket(sizes.num_tokens, min(sizes.num_sequences + 1, 512), sizes.max_seqlen),
            Bucket(sizes.num_tokens, sizes.num_sequences, min(sizes.max_seqlen + 9, 8192)),
        ):
            found = table.find(larger)
            assert found is None or table.cost(found) >= cost


@BOTH
@pytest.mark.parametrize("limits", LIMITS)
def test_the_coarse_ones_hold_everything_too(limits, by_longest):
    table = make(*limits, by_longest)
    assert set(table.coarse) <= set(table.buckets)
    for sizes in batches(*limits, seed=2):
        coarse = table.find(sizes, among=table.coarse)
        assert coarse is not None, sizes
        assert coarse.num_tokens <= max(2 * sizes.num_tokens, 16, limits[0])


def test_a_coarse_one_is_at_most_about_twice_as_expensive():
    table = make()
    for sizes in batches(16384, 512, 8192, seed=3):
        own, coarse = table.find(sizes), table.find(sizes, among=table.coarse)
        assert table.cost(coarse) <= max(3 * table.cost(own), 64), (sizes, own, coarse)


def test_only_among_those_asked_for():
    table = make()
    sizes = Bucket(100, 3, 40)
    wanted = Bucket(512, 64, 512)
    assert wanted in table.buckets
    assert table.find(sizes, among={wanted, Bucket(16, 1, 16)}) == wanted
    assert table.find(sizes, among={Bucket(16, 1, 16)}) is None
    assert table.find(sizes, among=set()) is None


def test_up_to_is_the_lower_part():
    table = make()
    part = table.up_to(4096)
    assert part.max_tokens == 4096
    assert part.buckets == tuple(bucket for bucket in table.buckets if bucket.num_tokens <= 4096)
    assert set(part.coarse) == set(table.coarse) & set(part.buckets)
    assert part.find(Bucket(4096, 8, 4096)) == table.find(Bucket(4096, 8, 4096))
    assert part.find(Bucket(4097, 8, 4096)) is None
    assert table.find(Bucket(4097, 8, 4096)) is not None


@pytest.mark.parametrize(("tokens", "limit"), [(1024, 8192), (16384, 8192), (16384, 512)])
def test_the_typical_bucket_is_of_so_many_tokens_and_few_sequences(tokens, limit):
    bucket = make(max_seqlen=limit).typical(tokens)
    assert bucket.num_tokens == tokens
    assert bucket.num_sequences == tokens // 256


@BOTH
@pytest.mark.parametrize("limits", LIMITS)
def test_dummy_lengths_fill_a_bucket(limits, by_longest):
    for bucket in make(*limits, by_longest).buckets:
        lengths = dummy_lengths(bucket)
        assert sum(lengths) == bucket.num_tokens
        assert 1 <= min(lengths) <= max(lengths) <= bucket.max_seqlen
        assert len(lengths) <= bucket.num_sequences
