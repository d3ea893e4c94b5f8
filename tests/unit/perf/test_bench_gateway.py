"""The benchmark of the gateway, without a server."""

import argparse

import bench_gateway


def test_turns_are_taken_and_the_first_do_not_count():
    order = []

    def call(name):
        return lambda: order.append(name) or len(order) / 1e3

    samples = bench_gateway.in_turns({"a": call("a"), "b": call("b")}, repeats=3)
    assert order == ["a", "b"] * 23
    assert samples == {"a": [41.0, 43.0, 45.0], "b": [42.0, 44.0, 46.0]}


def test_encoders_are_compared(capsys):
    lines = bench_gateway.measure_encoding(argparse.Namespace(repeats=2))
    assert [len(line.samples_ms) for line in lines] == [2] * 5
    assert {line.protocol for line in lines} >= {"json", "orjson of numpy", "pybase64 of numpy"}
    assert "100 x 1024" in capsys.readouterr().out
