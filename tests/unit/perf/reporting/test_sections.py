import re

import pytest

from reporting import sections
from reporting.sections import anchor, group_of, report


def line(level="engine", suite="latency", system="lazuli 1", **more):
    fields = {"system": system, "level": level, "suite": suite, "model": "m", "dtype": "auto", "machine": "box"}
    times = {"samples_ms": [1.0, 2.0] * 60, "p50_ms": 1.0, "p90_ms": 1.5, "p99_ms": 2.0, "emb_per_s": 9.0}
    return fields | {"torch": "2", "commit": "abc", "batch": 1, "texts": 1, "len": 16} | times | more


@pytest.mark.parametrize(
    ("name", "lines", "group"),
    [
        ("a/x", [line(), line(system="other 3")], sections.SIDE_BY_SIDE),
        ("a/x", [line(), line(system="lazuli 2")], sections.ENGINE),
        ("a/x", [line("server")], sections.SERVER),
        ("a/x", [line("kernel", "attention")], sections.KERNELS),
        ("a/x", [line("tokenizer", "t")], sections.TOKENIZERS),
        ("a/x", [line(suite="accuracy")], sections.CLOSENESS),
        ("a/x", [line(suite="waste")], sections.GRAPHS),
        ("a/x_14a068f", [line()], sections.EARLIER),
    ],
)
def test_groups(name, lines, group):
    assert group_of(name, lines) == group


def test_a_reader_meets_other_systems_first_and_earlier_runs_last():
    results = {
        "a/one_14a068f": [line()],
        "a/two": [line()],
        "a/three": [line("server")],
        "a/four": [line("server"), line("server", system="other 3")],
    }
    content = report(results, lambda name, figure: f"({name})")
    assert re.findall("^#### (.*)", content, re.MULTILINE) == ["a/four", "a/three", "a/two", "a/one_14a068f"]
    links = re.findall(r"\(#(.*?)\)", content)
    assert links == [anchor(heading) for heading in re.findall("^####? (.*)", content, re.MULTILINE)]


@pytest.mark.parametrize("suite", ["concurrency", "throughput", "mixed", "memory", "arrivals", "first", "locust"])
def test_suites_have_plots(suite):
    extra = {"loaded_s": 1.0, "rss_mib": 100.0, "offered_per_s": 3.0}
    lines = [line("server", suite, concurrency=number, note=f"{number}", extra=extra) for number in (1, 4)]
    kept = {}
    report({"box/x": lines}, lambda name, figure: kept.setdefault(name, figure) and "")
    assert list(kept) == [f"box-x-{suite}"]
    assert all(axes.get_xlabel() and axes.has_data() for axes in kept[f"box-x-{suite}"].axes)


def test_all_models_of_a_machine_are_in_one_plot():
    lines = {
        f"gpu/{model}": [
            *(line(model=model, len=length) for length in (16, 128, 512)),
            line(suite="captures", model=model, len=128),
        ]
        for model in ("one", "two")
    }
    kept = {}
    report(lines, lambda name, figure: kept.setdefault(name, figure) and "")
    assert list(kept) == ["gpu-engine-latency", "gpu-engine-captures"]
    labels = [text.get_text() for text in kept["gpu-engine-latency"].legends[0].get_texts()]
    assert labels == ["one", "two"]


def test_long_tables_are_folded():
    many = [line("server", len=length) for length in range(20)]
    assert "<details><summary>20 rows</summary>" in report({"a/b": many}, lambda name, figure: "")
    assert "<details>" not in report({"a/b": many[:3]}, lambda name, figure: "")
