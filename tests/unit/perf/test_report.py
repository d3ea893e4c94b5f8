import pytest

import report


def line(system, p50_ms, **more):
    return {"system": system, "suite": "latency", "len": 16, "batch": 1, "model": "m", "p50_ms": p50_ms, **more}


IN_TURNS = {"extra": {"turns": 5}}


def test_systems_are_compared_with_the_first_on_the_same_work():
    first, second, alone = report.compare([line("a", 6.0), line("b", 3.0), line("b", 1.0, len=32)])
    assert "speedup" not in first
    assert second["speedup"] == 2.0
    assert "speedup" not in alone


@pytest.mark.parametrize(("more", "compared"), [(IN_TURNS, True), ({}, False)])
def test_how_a_system_is_reached_counts_unless_they_took_turns(more, compared):
    _, server = report.compare([line("a", 6.0, **more), line("b", 3.0, protocol="grpc", **more)])
    assert ("speedup" in server) is compared


def test_one_system_reached_in_two_ways_is_not_compared_with_itself():
    lines = report.compare([line("a", 6.0, **IN_TURNS), line("a", 3.0, protocol="grpc", **IN_TURNS)])
    assert not any("speedup" in each for each in lines)


def test_many_texts_are_compared_by_rate():
    many = [line(name, 9.0, emb_per_s=rate) | {"suite": "throughput"} for name, rate in (("a", 100.0), ("b", 250.0))]
    assert report.compare(many)[1]["speedup"] == 2.5


def test_the_agreement_with_the_first_has_a_column():
    lines = [
        line("a", 6.0, samples_ms=[6.0]),
        line("b", 3.0, samples_ms=[3.0], extra={"turns": 5, "min_cosine": 0.99991}),
    ]
    header, _, first, second = report.table(report.compare(lines)).splitlines()
    assert header.endswith("| least cosine |")
    assert first.endswith("|  |")
    assert second.endswith("| 0.999910 |")
