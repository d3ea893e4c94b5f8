import math

from lazuli.metrics.histogram import Histogram


def read(histogram):
    return {(sample.family.name, *sample.labels): sample.value for sample in histogram.samples()}


def quantile(share, buckets):
    """What Prometheus makes of buckets: a line inside the one that holds the rank; its documentation has the rule."""
    buckets = sorted((math.inf if le == "+Inf" else float(le), count) for le, count in buckets)
    rank = share * buckets[-1][1]
    place = next(place for place, (_, count) in enumerate(buckets) if count >= rank)
    upper, count = buckets[place]
    if upper == math.inf:
        return buckets[-2][0]
    lower, before = buckets[place - 1] if place else (0.0, 0)
    return lower + (upper - lower) * (rank - before) / (count - before)


def test_a_bucket_holds_what_is_not_above_it():
    histogram = Histogram("h", "H.", (1.0, 2.5, 10.0))
    histogram.add([0.5, 1.0, 2.0, 11.0])
    assert read(histogram) == {
        ("h_sum",): 14.5,
        ("h_count",): 4,
        ("h_bucket", ("le", "1")): 2,
        ("h_bucket", ("le", "2.5")): 3,
        ("h_bucket", ("le", "10")): 3,
        ("h_bucket", ("le", "+Inf")): 4,
    }


def test_it_grows():
    histogram = Histogram("h", "H.", (1.0,))
    histogram.add([0.5])
    histogram.add([3.0])
    assert read(histogram) == {
        ("h_sum",): 3.5,
        ("h_count",): 2,
        ("h_bucket", ("le", "1")): 1,
        ("h_bucket", ("le", "+Inf")): 2,
    }


def test_published_one_after_the_other_no_bucket_holds_less_than_a_narrower_one():
    histogram = Histogram("h", "H.", (1.0, 2.0, 4.0))
    published = {sample.labels: sample.value for sample in histogram.samples() if sample.family.name == "h_bucket"}
    widths = [(("le", le),) for le in ("1", "2", "4", "+Inf")]
    histogram.add([0.5, 1.5, 3.0, 9.0])
    for sample in histogram.samples():
        if sample.family.name == "h_bucket":
            published[sample.labels] = sample.value
            counts = [published[width] for width in widths]
            assert counts == sorted(counts)


def test_quantiles():
    histogram = Histogram("h", "H.", tuple(float(bound) for bound in range(10, 101, 10)))
    histogram.add(range(1, 101))
    buckets = [(sample.labels[0][1], sample.value) for sample in histogram.samples() if sample.labels]
    assert quantile(0.5, buckets) == 50
    assert quantile(0.99, buckets) == 99
