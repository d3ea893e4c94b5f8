from reporting.results import compare
from reporting.tables import common, rows, table


def line(system, p50_ms, samples=1, **more):
    fields = {"system": system, "suite": "latency", "len": 16, "batch": 1, "texts": 1, "model": "m", "p50_ms": p50_ms}
    return fields | {"p99_ms": p50_ms, "samples_ms": [p50_ms] * samples} | more


def cells(text):
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines()]


def test_the_agreement_with_the_first_has_a_column():
    lines = [line("a", 6.0), line("b", 3.0, extra={"min_cosine": 0.99991})]
    header, _, first, second = cells(table(compare(lines)))
    assert header[-1] == "least cosine"
    assert first[-1] == ""
    assert second[-1] == "0.999910"


def test_memory_has_columns_and_none_for_a_device_that_is_not_there():
    extra = {"rss_mib": 1234.5, "device_mib": 0.0, "shm_mib": 70.0}
    header, _, row = cells(table(compare([line("a", 6.0, extra=extra)])))
    assert header[-2:] == ["resident MiB", "shared memory MiB"]
    assert row[-2:] == ["1,234", "70"]


def test_tails_of_few_samples_are_left_out():
    header, _, few, many = cells(table([line("a", 1.0, samples=49), line("b", 1.0, samples=50)]))
    place = header.index("p99 ms")
    assert (few[place], many[place]) == ("", "1.00")


def test_numbers_are_to_the_right():
    assert rows([["system", "n", "mixed"], ["a 1", "**1,2**", "3-256"], ["b", "", "(7)"]]).splitlines()[1] == (
        "| --- | ---: | ---: |"
    )
    assert rows([["n"], ["16"], ["16 of 17"]]).splitlines()[1] == "| --- |"


def test_what_is_the_same_for_all_is_said_once():
    lines = [line("a", 1.0, dtype="bfloat16", protocol=name, attention="auto") for name in ("grpc", "http")]
    assert common(lines) == (["system", "dtype", "attention"], "a, dtype bfloat16")


def test_where_some_are_reached_by_a_protocol_the_others_are_in_process():
    header, _, engine, server = cells(table([line("a", 1.0), line("a", 1.0, protocol="grpc")]))
    place = header.index("protocol")
    assert (engine[place], server[place]) == ("in process", "grpc")
    assert "protocol" not in cells(table([line("a", 1.0)]))[0]
