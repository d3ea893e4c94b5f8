import pytest

from lazuli.graph import GraphCounters
from lazuli.metrics.engine import EngineMetrics, EngineState
from lazuli.metrics.recorder import EngineRecorder


@pytest.fixture
def recorder():
    return EngineRecorder()


def metrics_of(recorder, queue_tokens=0, queue_oldest_s=0.0, **graphs):
    return EngineMetrics(recorder, lambda: EngineState(queue_tokens, queue_oldest_s, GraphCounters(**graphs)))


def read(metrics):
    samples = metrics.collect()
    values = {(sample.family.name, *(value for _, value in sample.labels)): sample.value for sample in samples}
    assert len(values) == len(samples), "one value for each name and labels"
    return values


def test_requests_texts_and_tokens_by_outcome(recorder):
    metrics = metrics_of(recorder)
    recorder.requests.append(("ok", 3, 40, 0.004))
    recorder.requests.append(("ok", 1, 5, 0.2))
    recorder.requests.append(("DeviceError", 2, 9, 0.001))
    values = read(metrics)
    assert values["lazuli_requests_total", "ok"] == 2
    assert values["lazuli_texts_total", "ok"] == 4
    assert values["lazuli_tokens_total", "ok"] == 45
    assert values["lazuli_requests_total", "DeviceError"] == 1
    assert values["lazuli_texts_total", "DeviceError"] == 2
    assert values["lazuli_tokens_total", "DeviceError"] == 9
    assert values["lazuli_requests_total", "OverloadedError"] == 0
    assert values["lazuli_request_seconds_count",] == 3
    assert values["lazuli_request_seconds_sum",] == pytest.approx(0.205)
    assert values["lazuli_request_seconds_bucket", "0.005"] == 2


def test_nothing_is_counted_twice(recorder):
    metrics = metrics_of(recorder)
    recorder.requests.append(("ok", 3, 40, 0.004))
    read(metrics)
    recorder.requests.append(("ok", 1, 2, 0.004))
    assert read(metrics)["lazuli_tokens_total", "ok"] == 42


def test_batches(recorder):
    metrics = metrics_of(recorder)
    recorder.steps.append((10.0, 10.5, 2, 100))
    recorder.steps.append((11.0, 11.25, 64, 4000))
    values = read(metrics)
    assert values["lazuli_step_seconds_sum",] == 0.75
    assert values["lazuli_batch_tokens_sum",] == 4100
    assert values["lazuli_batch_tokens_bucket", "128"] == 1
    assert values["lazuli_batch_tokens_bucket", "4096"] == 2
    assert values["lazuli_batch_sequences_sum",] == 66
    assert values["lazuli_batch_sequences_bucket", "2"] == 1


def test_time_of_batches_that_overlap_counts_once(recorder):
    metrics = metrics_of(recorder)
    recorder.steps.append((10.0, 12.0, 1, 1))
    recorder.steps.append((11.0, 13.0, 1, 1))
    assert read(metrics)["lazuli_device_busy_seconds_total",] == 3.0
    recorder.steps.append((12.5, 14.0, 1, 1))  # queued before the one that was counted last arrived
    recorder.steps.append((20.0, 21.0, 1, 1))
    assert read(metrics)["lazuli_device_busy_seconds_total",] == 5.0


def test_replies(recorder):
    metrics = metrics_of(recorder)
    recorder.replies.extend([0.001, 0.003])
    values = read(metrics)
    assert values["lazuli_reply_seconds_count",] == 2
    assert values["lazuli_reply_seconds_bucket", "0.001"] == 1


def test_queue_and_graphs_are_looked_at(recorder):
    counts = {"replayed": 5, "stood_in": 4, "missed": 3, "above": 2, "captured": 7, "capture_s": 1.5, "evicted": 1}
    values = read(metrics_of(recorder, 300, 0.25, **counts, failed=6, padded_tokens=88, graphs=9, graph_bytes=1 << 20))
    assert values["lazuli_queue_tokens",] == 300
    assert values["lazuli_queue_oldest_seconds",] == 0.25
    ways = ("hit", "stand_in", "miss", "above")
    assert [values["lazuli_graph_batches_total", way] for way in ways] == [5, 4, 3, 2]
    assert values["lazuli_graph_captures_total",] == 7
    assert values["lazuli_graph_capture_seconds_total",] == 1.5
    assert values["lazuli_graph_evictions_total",] == 1
    assert values["lazuli_graph_failures_total",] == 6
    assert values["lazuli_batch_padded_tokens_total",] == 88
    assert values["lazuli_graphs",] == 9
    assert values["lazuli_graph_bytes",] == 1 << 20
