"""The guard of the hot paths: what it counts, when it complains, and that it sees a slowdown of the real code."""

import json
import shutil
import threading

import pytest

import guard
from guarding import baseline, times, worker
from guarding.baseline import Change, compare
from guarding.source_tree import WORKING_TREE, commit_tree, environment_of
from guarding.times import Ratio, compare_times
from guarding.work_counter import count_work

WORK = {"instructions": 1000, "c_calls": 10, "peak_bytes": 10_000}


def loop(count):
    def prepare():
        numbers = list(range(count))

        def run():
            for number in numbers:
                number + 1

        return run

    return prepare


def test_instructions_grow_with_the_work():
    one, ten = count_work(loop(1)).instructions, count_work(loop(10)).instructions
    a_round, rest = divmod(ten - one, 9)
    assert rest == 0
    assert 3 <= a_round <= 8


def test_preparing_is_not_counted():
    def prepare():
        sum(range(1000))
        [number + 1 for number in range(1000)]
        return lambda: None

    work = count_work(prepare)
    assert work.instructions < 10
    assert work.c_calls == 0


def test_calls_of_c_functions_are_counted():
    assert count_work(lambda: lambda: [len(""), len(""), abs(1)]).c_calls == 3


def test_memory_counts_where_it_was_most():
    work = count_work(lambda: lambda: len(bytes(100_000)))
    assert 100_000 <= work.peak_bytes < 101_000


def test_counts_are_the_same_each_time():
    assert count_work(loop(50)) == count_work(loop(50))


def test_functions_called_are_counted_too():
    def callee():
        return [number for number in (1, 2, 3) if number > 1]

    inner = count_work(lambda: callee).instructions
    assert count_work(lambda: lambda: callee()).instructions > inner


def test_equal_counts_are_no_change():
    assert list(compare({"a": WORK}, {"a": WORK}, 0.05)) == []


@pytest.mark.parametrize(
    ("unit", "allowed", "too_much"), [("instructions", 1050, 1051), ("c_calls", 10, 11), ("peak_bytes", 10_512, 10_513)]
)
def test_what_is_beyond_the_tolerance_is_growth(unit, allowed, too_much):
    assert list(compare({"a": WORK}, {"a": WORK | {unit: allowed}}, 0.05)) == []
    (change,) = compare({"a": WORK}, {"a": WORK | {unit: too_much}}, 0.05)
    assert change == Change("a", unit, WORK[unit], too_much)
    assert change.is_growth


def test_less_work_is_told_but_no_growth():
    (change,) = compare({"a": WORK}, {"a": WORK | {"instructions": 800}}, 0.05)
    assert not change.is_growth
    assert str(change) == "a: 1,000 to 800 instructions (-20.0%)"


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [({}, {"a": WORK}, "a: new"), ({"a": WORK}, {}, "a: gone"), ({"a": WORK}, {"a": None}, "a: gone")],
)
def test_a_path_without_its_pair_needs_a_decision(before, now, text):
    (change,) = compare(before, now, 0.05)
    assert change.is_growth
    assert str(change) == text


def test_the_baseline_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "baseline.json"
    baseline.write({"a": WORK}, file)
    assert baseline.read(file) == (baseline.describe_environment(), {"a": WORK})


def test_the_accepted_counts_are_of_the_paths_that_there_are():
    assert list(baseline.read()[1]) == list(worker.all_paths())


def test_a_ratio_needs_three_of_four_rounds():
    ratio = Ratio("a", 1000.0, [0.9, 1.3, 1.2, 1.3, 1.2, 1.3, 1.2, 1.3])
    assert ratio.middle == pytest.approx(1.25)
    assert ratio.lower == 1.2
    assert str(ratio) == "a: 1.0 µs × 1.25 (three of four rounds: 1.20 or more)"


class FakeTimer:
    """Takes its times from a table: for each path those of its turns."""

    def __init__(self, tree):
        self.tree = tree
        self.paths = ["same", "slower", "slower once", "new"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def time(self, path, runs):
        turns.append((path, self.tree))
        if self.tree == "before":
            return None if path == "new" else 1000.0
        late = path == "slower" or (path == "slower once" and turns.count((path, self.tree)) <= 5)
        return 1500.0 if late else 1010.0


turns = []


def test_trees_are_timed_turn_and_turn_about_and_suspects_twice(monkeypatch):
    monkeypatch.setattr(times, "Timer", FakeTimer)
    turns.clear()
    ratios = {ratio.path: ratio for ratio in compare_times("before", "now", rounds=4)}
    assert {path: round(ratio.lower, 2) for path, ratio in ratios.items()} == {
        "same": 1.01,
        "slower": 1.5,
        "slower once": 1.01,
    }
    order = [tree for path, tree in turns if path == "same"][2:]
    assert order == ["before", "now", "now", "before"] * 2
    assert turns.count(("slower", "now")) == 1 + 2 * 4


@pytest.fixture(scope="module")
def slow_tree(tmp_path_factory):
    """The source with a needless copy of all rows in `RaggedBatch.pack`."""
    tree = tmp_path_factory.mktemp("slow")
    for package in ("backend_src", "client"):
        shutil.copytree(WORKING_TREE / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    file = tree / "backend_src" / "lazuli" / "batch.py"
    place = "lengths = np.fromiter(map(len, rows)"
    text = file.read_text(encoding="utf-8")
    assert text.count(place) == 1
    file.write_text(text.replace(place, f"rows = [row.copy() for row in rows]\n        {place}"), encoding="utf-8")
    return tree


def test_it_finds_a_slowdown_in_a_tree(slow_tree, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(baseline, "FILE", tmp_path / "baseline.json")
    counts = guard.count(WORKING_TREE, ["pack"])
    monkeypatch.setattr(baseline, "read", lambda: (baseline.describe_environment(), counts))
    assert guard.main(["--only", "pack"]) == 0
    assert guard.main(["--only", "pack", "--tree", str(slow_tree)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("MORE  pack: 64 texts: ") and "instructions" in line for line in lines)
    assert not any("pack: one text" in line for line in lines)


def test_counts_of_other_libraries_are_not_compared_with(capsys, monkeypatch):
    monkeypatch.setattr(baseline, "read", lambda: ({"python": "cpython 2.7"}, {"pack: one text": WORK}))
    monkeypatch.setattr(guard, "commit_tree", _no_repository)
    assert guard.main(["--only", "pack: one"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "guard: nothing to compare with: no repository"


def _no_repository(commit):
    raise LookupError("no repository")


def test_an_unknown_commit_is_told():
    with (
        pytest.raises(LookupError, match=r"no source of no-such-commit|git is not installed"),
        commit_tree("no-such-commit"),
    ):
        pass


def test_the_code_of_another_place_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match=f"and not from {tmp_path}"):
        worker.check_source(tmp_path)


def test_the_benchmarks_are_those_of_this_tree(tmp_path):
    places = environment_of(tmp_path)["PYTHONPATH"].split(":")
    assert places == [str(tmp_path / "backend_src"), str(tmp_path / "client"), str(WORKING_TREE / "perf")]


def test_a_path_that_a_tree_lacks_counts_for_nothing(monkeypatch):
    def prepare():
        raise AttributeError("no such function then")

    monkeypatch.setattr(worker, "all_paths", lambda: {"old": prepare, "new": loop(1)})
    counts = worker.count([])
    assert counts["old"] is None
    assert counts["new"]["instructions"] > 0
    assert list(worker.count(["new"])) == ["new"]


def test_other_threads_are_not_timed():
    stop = threading.Event()

    def burn():
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=burn)
    thread.start()
    try:
        elapsed = worker.time_runs(lambda: lambda: stop.wait(0.2), 1)
    finally:
        stop.set()
        thread.join()
    assert elapsed < 100_000_000, "waiting is no work"


def test_the_timing_process_answers(monkeypatch, capsys):
    lines = [json.dumps({"path": "a", "runs": 3}) + "\n", json.dumps({"path": "b", "runs": 1}) + "\n"]
    monkeypatch.setattr(worker, "all_paths", lambda: {"a": loop(10), "b": lambda: None.run})
    monkeypatch.setattr("sys.stdin", lines)
    worker._answer_times()
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first > 0
    assert second is None
