"""What is counted of a load, and what is not."""

import pytest

from clients.load import Load, Report, Span, combine, merge


def span(sent, answered, tokens=3, due=None, error=None):
    return Span(sent if due is None else due, sent, answered, tokens, error)


def result(load, *clients, start=10.0, core_share=0.5):
    return combine(load, 0, start, [Report({0: list(clients)}, core_share)])


def test_of_rounds_all_but_the_untimed_count():
    load = Load(None, None, rounds=2, untimed=1)
    spans = [span(10, 11), span(11.5, 12), span(12.25, 13)]
    of_all = result(load, spans)
    assert of_all.samples_ms == [500, 750]
    assert of_all.at_s == [0, 0.75]
    assert of_all.tokens == 6
    assert of_all.wall_s == 1.5
    assert of_all.gap_ms == 250


def test_by_time_a_closed_loop_counts_the_answers_within_the_window():
    load = Load(None, None, seconds=2.0, settle_s=1.0)
    spans = [span(10, 10.9), span(10.9, 11.5), span(11.5, 12.9), span(12.9, 13.1)]
    assert result(load, spans).samples_ms == pytest.approx([600, 1400])
    assert result(load, spans).wall_s == 2.0


def test_an_open_loop_counts_from_when_a_request_was_due():
    load = Load(None, None, seconds=2.0, settle_s=1.0, rate=1.0)
    spans = [span(10.5, 11, due=10.5), span(12, 12.5, due=11.25), span(12.5, 14.0, due=12.75)]
    found = result(load, spans)
    assert found.samples_ms == [1250, 1250]  # both late answers, and the time until it was sent
    assert found.at_s == [0.25, 1.75]
    assert found.wall_s == 3.0  # until the last answer
    assert found.gap_ms == 0


def test_errors_are_counted_and_not_timed():
    load = Load(None, None, seconds=2.0, rate=1.0)
    found = result(load, [span(10, 11), span(11, 11.5, error="HTTP 503"), span(11.5, 12)])
    assert (len(found.samples_ms), found.failed, found.errors) == (2, 1, ("HTTP 503",))
    assert found.tokens == 6


def test_processes_and_the_busiest_of_them():
    load = Load(None, None, rounds=1)
    reports = [Report({0: [[span(10, 11)]]}, 0.2), Report({0: [[span(10, 12)]], 1: []}, 0.7), Report({1: []}, 0.1)]
    found = combine(load, 0, 10.0, reports)
    assert (found.processes, found.busiest_core_share, found.wall_s) == (2, 0.7, 2.0)


def test_turns_are_put_one_after_the_other():
    load = Load(None, None, rounds=1)
    turns = [result(load, [span(10, 11)]), result(load, [span(50, 50.5)], start=50.0)]
    merged = merge(turns)
    assert merged.samples_ms == [1000, 500]
    assert merged.at_s == [0, 1.0]
    assert (merged.wall_s, merged.tokens) == (1.5, 6)
