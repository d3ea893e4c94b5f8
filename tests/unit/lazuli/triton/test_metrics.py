"""What goes to Triton's endpoint, over a stand-in for it."""

import logging
import os

import numpy as np
import pytest

from lazuli.metrics.samples import counter, gauge

WORK = counter("work_total", "Work.")
LEVEL = gauge("level", "Level.")


@pytest.fixture
def values():
    return [WORK.sample(2, kind="a"), LEVEL.sample(5)]


@pytest.fixture
def exporter(load, values):
    exporter = load("metrics").Exporter(lambda: values, {"model": "m"})
    yield exporter
    exporter.close()


def published(pb_utils):
    return {
        (metric.family.name, *metric.labels.values()): metric.value
        for metric in pb_utils.MetricFamily.metrics
        if metric.family.name != "lazuli_published_timestamp_seconds"
    }


def test_values_are_there_at_once(pb_utils, exporter):
    assert published(pb_utils) == {("work_total", "m", "a"): 2, ("level", "m"): 5}


def test_counters_grow_by_what_is_new_and_gauges_move(pb_utils, exporter, values):
    values[:] = [WORK.sample(7, kind="a"), LEVEL.sample(1)]
    exporter.publish()
    assert published(pb_utils) == {("work_total", "m", "a"): 7, ("level", "m"): 1}


def test_a_family_is_made_once(pb_utils, exporter, values):
    values.append(WORK.sample(1, kind="b"))
    exporter.publish()
    first, second = (metric for metric in pb_utils.MetricFamily.metrics if metric.family.name == "work_total")
    assert first.family is second.family
    assert (first.value, second.value) == (2, 1)


def test_each_metric_is_made_once(pb_utils, exporter, values):
    values.append(WORK.sample(0, kind="none yet"))
    exporter.publish()
    number = len(pb_utils.MetricFamily.metrics)
    exporter.publish()
    assert len(pb_utils.MetricFamily.metrics) == number


def test_only_changes_and_the_time_are_sent(pb_utils, exporter):
    pb_utils.MetricFamily.changes.clear()
    exporter.publish()
    assert [metric.family.name for metric in pb_utils.MetricFamily.changes] == ["lazuli_published_timestamp_seconds"]


def test_a_gauge_at_zero_replaces_what_an_earlier_process_left(pb_utils, load):
    exporter = load("metrics").Exporter(lambda: [LEVEL.sample(0), WORK.sample(0)], {})
    exporter.close()
    assert "level" in [metric.family.name for metric in pb_utils.MetricFamily.changes]
    assert "work_total" not in [metric.family.name for metric in pb_utils.MetricFamily.changes]


def test_what_could_not_be_sent_is_sent_the_next_time(pb_utils, exporter, values, monkeypatch):
    metric = next(metric for metric in pb_utils.MetricFamily.metrics if metric.family.name == "work_total")
    values[:] = [WORK.sample(9, kind="a")]
    with monkeypatch.context() as patch:
        patch.setattr(metric, "increment", raise_memory_error)
        with pytest.raises(MemoryError):
            exporter.publish()
    exporter.publish()
    assert metric.value == 9


def raise_memory_error(value):
    raise MemoryError("shared memory is full")


def test_the_thread_outlives_an_error_and_says_it_once(pb_utils, load, monkeypatch, caplog):
    metrics = load("metrics")
    monkeypatch.setattr(metrics, "_INTERVAL_S", 0.001)
    calls = []

    def collect():
        calls.append(1)
        if 2 <= len(calls) <= 5:
            raise OSError("a fault")
        return [WORK.sample(len(calls))]

    exporter = metrics.Exporter(collect, {})
    while len(calls) < 7:
        pass
    exporter.close()
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert published(pb_utils)["work_total",] >= 6


def test_off_means_nothing(pb_utils, load):
    assert load("metrics").export(list, {}, enabled=False) is None
    assert not pb_utils.MetricFamily.metrics


def test_a_server_without_metrics_serves_all_the_same(pb_utils, load, monkeypatch):
    monkeypatch.delattr(pb_utils, "MetricFamily")
    assert load("metrics").export(lambda: [WORK.sample(1)], {"model_name": "m"}, enabled=True) is None


def start_tokenizer(load, arguments, **parameters):
    model = load("tokenizer").TritonPythonModel()
    model.initialize(arguments(**parameters))
    return model


def texts(*values):
    return np.array([[value] for value in values], dtype=object)


def test_a_tokenizer_counts_its_requests(pb_utils, load, arguments):
    model = start_tokenizer(load, arguments)
    model.execute([pb_utils.Request({"truncate": "end"}, text=texts(b"short", b"long " * 300))])
    model.execute([pb_utils.Request({"nonsense": 1}, text=texts(b"short"))])
    model._exporter.publish()
    seen = published(pb_utils)
    model.finalize()
    process = str(os.getpid())  # two processes must not have the same metric
    assert seen["lazuli_requests_total", "", "", process, "ok"] == 1
    assert seen["lazuli_texts_total", "", "", process, "ok"] == 2
    assert seen["lazuli_truncated_texts_total", "", "", process] == 1
    assert seen["lazuli_requests_total", "", "", process, "OptionError"] == 1


def test_a_tokenizer_without_metrics(pb_utils, load, arguments):
    model = start_tokenizer(load, arguments, metrics="off")
    model.execute([pb_utils.Request(text=texts(b"short"))])
    model.finalize()
    assert not pb_utils.MetricFamily.metrics
    assert not model._recorded
