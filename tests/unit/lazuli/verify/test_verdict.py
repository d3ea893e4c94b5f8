from lazuli.verify.verdict import Check, Verdict


def test_checks():
    assert Check.at_least("a", "a", 0.5, 0.5).passed
    assert not Check.at_least("a", "a", 0.4, 0.5).passed
    assert Check.at_most("a", "a", 0.5, 0.5).passed
    assert not Check.at_most("a", "a", 0.6, 0.5).passed
    assert not Check.at_least("a", "a", float("nan"), 0.5).passed
    assert not Check.at_most("a", "a", float("nan"), 0.5).passed


def test_one_failure_is_enough():
    fine, bad = Check.at_least("fine", "this", 1, 0.5), Check.at_most("bad", "that", 1, 0.5)
    shown = Check("shown", "only shown", 0.25)
    verdict = Verdict("all of it", (fine, bad, shown))
    assert not verdict.passed
    lines = [line.split() for line in verdict.table().splitlines()]
    assert lines == [
        ["all", "of", "it"],
        ["this", "1.000000", "limit", "0.5", "ok"],
        ["that", "1.000000", "limit", "0.5", "FAILED"],
        ["only", "shown", "0.250000"],
        ["FAILED"],
    ]
    assert verdict.as_json() == {"passed": False, "compared": "all of it", "fine": 1.0, "bad": 1.0, "shown": 0.25}
    assert Verdict("", (fine, shown)).table().endswith("passed")
