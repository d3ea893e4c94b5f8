import json

import pytest

from reporting.results import commands, compare, read_results


def line(system, p50_ms, **more):
    return {"system": system, "suite": "latency", "len": 16, "batch": 1, "model": "m", "p50_ms": p50_ms, **more}


IN_TURNS = {"extra": {"turns": 5}}


def test_systems_are_compared_with_the_first_on_the_same_work():
    first, second, alone = compare([line("a", 6.0), line("b", 3.0), line("b", 1.0, len=32)])
    assert "speedup" not in first
    assert second["speedup"] == 2.0
    assert "speedup" not in alone


@pytest.mark.parametrize(("more", "compared"), [(IN_TURNS, True), ({}, False)])
def test_how_a_system_is_reached_counts_unless_they_took_turns(more, compared):
    _, server = compare([line("a", 6.0, **more), line("b", 3.0, protocol="grpc", **more)])
    assert ("speedup" in server) is compared


def test_one_system_reached_in_two_ways_is_not_compared_with_itself():
    lines = compare([line("a", 6.0, **IN_TURNS), line("a", 3.0, protocol="grpc", **IN_TURNS)])
    assert not any("speedup" in each for each in lines)


def test_many_texts_are_compared_by_rate():
    many = [line(name, 9.0, emb_per_s=rate) | {"suite": "throughput"} for name, rate in (("a", 100.0), ("b", 250.0))]
    assert compare(many)[1]["speedup"] == 2.5


def test_latencies_at_loads_of_their_own_are_not_compared():
    lines = compare([line(name, p50) | {"suite": "arrivals"} for name, p50 in (("a", 6.0), ("b", 3.0))])
    assert "speedup" not in lines[1]


def test_a_command_is_the_lines_own_or_the_noted_one(tmp_path):
    (tmp_path / "box").mkdir()
    (tmp_path / "commands.json").write_text(json.dumps({"box/a": "noted", "box/old": "one\ntwo"}))
    (tmp_path / "box" / "a.jsonl").write_text(
        json.dumps({"command": "own"}) + "\n" + json.dumps({"command": "own"}) + "\n"
    )
    (tmp_path / "box" / "old.jsonl").write_text("{}\n")
    (tmp_path / "box" / "unknown.jsonl").write_text("{}\n")
    results = read_results(tmp_path)
    assert {name: commands(lines) for name, lines in results.items()} == {
        "box/a": ["own"],
        "box/old": ["one", "two"],
        "box/unknown": [],
    }
