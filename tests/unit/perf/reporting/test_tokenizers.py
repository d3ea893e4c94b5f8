from reporting.tokenizers import tokenizer_tables


def line(system, length, batch, p50_ms, differ, threads=1, rate=0.0):
    extra = {"compared": 1_234_567, "differ": differ, "memory": 1.52}
    return {
        "system": system,
        "model": "BPE",
        "len": length,
        "batch": batch,
        "concurrency": threads,
        "p50_ms": p50_ms,
        "tokens_per_s": rate,
        "extra": extra,
    }


def test_a_row_for_each_library_and_the_quickest_of_the_equal_ones_is_bold():
    lines = [
        line("first", 16, 1, 0.04, 0),
        line("equal", 16, 1, 0.0123, 0),
        line("wrong", 16, 1, 0.0123, 4321),
        line("first", 512, 1, 1.2, 0),
        line("equal", 512, 1, 0.4, 0),
        line("wrong", 512, 1, 0.2, 4321),
        line("first", 128, 100, 30, 0, 2, 400_000),
        line("equal", 128, 100, 10, 0, 2, 1_200_000),
        line("wrong", 128, 100, 5, 4321, 2, 2_400_000),
    ]
    title, table = tokenizer_tables(lines)
    assert title == "**BPE, 1,234,567 texts compared**"
    assert table.splitlines() == [
        "| library | texts that differ | 16 tokens, µs | 512 tokens, µs | 100 × 128, 2 threads, million ids/s "
        "| new words / known words |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| first | 0 | 40.0 | 1,200 | 0.40 | 1.5 |",
        "| equal | 0 | **12.3** | **400** | **1.20** | 1.5 |",
        "| wrong | 4,321 | 12.3 | 200 | 2.40 | 1.5 |",
    ]
