import pytest

from lazuli.metrics.recorder import TokenizerRecorder
from lazuli.metrics.tokenizer import TokenizerMetrics


def test_requests_texts_truncations_and_time():
    recorder = TokenizerRecorder()
    metrics = TokenizerMetrics(recorder)
    recorder.requests.append(("ok", 5, 2, 0.003))
    recorder.requests.append(("InputError", 4, 0, 0.001))
    values = {(s.family.name, *(value for _, value in s.labels)): s.value for s in metrics.collect()}
    assert values["lazuli_requests_total", "ok"] == 1
    assert values["lazuli_texts_total", "ok"] == 5
    assert values["lazuli_texts_total", "InputError"] == 4
    assert values["lazuli_truncated_texts_total",] == 2
    assert values["lazuli_tokenize_seconds_count",] == 2
    assert values["lazuli_tokenize_seconds_sum",] == pytest.approx(0.004)
    assert not [name for name, *_ in values if name == "lazuli_tokens_total"], "the engine counts those"
