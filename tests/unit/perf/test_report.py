"""The command as a whole: what it writes from a few results."""

import json

import pytest

import report

LINE = {
    "system": "lazuli 1",
    "level": "server",
    "suite": "latency",
    "model": "m",
    "dtype": "auto",
    "machine": "box",
    "torch": "2",
    "commit": "abc",
    "command": "perf/run.py latency --machine <box>",
    "batch": 1,
    "texts": 1,
    "emb_per_s": 100.0,
    "samples_ms": [1.0] * 60,
    "p50_ms": 1.0,
    "p90_ms": 1.5,
    "p99_ms": 2.0,
}


@pytest.fixture
def perf(tmp_path, monkeypatch):
    """A project of nothing but results."""
    folder = tmp_path / "perf"
    (folder / "results" / "box").mkdir(parents=True)
    (folder / "plots").mkdir()
    (folder / "plots" / "old.svg").touch()
    for file in (tmp_path / "README.md", folder / "README.md"):
        file.write_text("before\n<!-- report -->\nstale\n<!-- /report -->\nafter\n")
    lines = [
        LINE | {"system": system, "len": length, "p50_ms": p50}
        for system, p50 in (("lazuli 1", 1.0), ("other 2", 4.0))
        for length in (16, 32, 64)
    ]
    (folder / "results" / "box" / "both.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(report, "PERF", folder)
    monkeypatch.setattr(report, "pages", list)
    monkeypatch.setattr("sys.argv", ["report.py"])
    return folder


def test_it_writes_between_the_marks_and_nothing_else(perf):
    report.main()
    content = (perf / "README.md").read_text()
    assert content.startswith("before\n<!-- report -->\n- [Side by side with other systems](#side-by-side")
    assert content.endswith("\n<!-- /report -->\nafter\n")
    assert "stale" not in content
    assert "#### box/both\n\nm on box; torch 2; commit abc\n\n    perf/run.py latency --machine <box>\n" in content
    assert "| other 2 | 16 | 1 | 4.00 | 1.50 | 2.00 | 100 | 0.25× |" in content


def test_its_plots_are_all_that_there_are(perf):
    report.main()
    assert [file.name for file in (perf / "plots").iterdir()] == ["box-both-latency.svg"]
    assert "![latency](plots/box-both-latency.svg)" in (perf / "README.md").read_text()


def test_the_same_results_give_the_same_files(perf):
    written = []
    for _ in range(2):
        report.main()
        written.append([file.read_bytes() for file in (perf / "report.html", perf / "plots" / "box-both-latency.svg")])
    assert written[0] == written[1]


def test_the_page_needs_nothing_else(perf):
    report.main()
    page = (perf / "report.html").read_text()
    assert "perf/run.py latency --machine &lt;box&gt;" in page
    assert page.count("<svg ") == 1
    for word in ("<script", "<img", "src=", "@import", "url(http", "<link rel=stylesheet"):
        assert word not in page


def test_a_file_without_marks_is_refused(perf):
    (perf / "README.md").write_text("no marks")
    with pytest.raises(ValueError, match="needs <!-- report -->"):
        report.main()
