"""Metrics on their way to Triton's own endpoint.

Takes samples from a function, now and then, in a thread of its own; hands what has changed to `pb_utils.MetricFamily`.
Each change is a round trip to the server process: on Triton 24.10 16 to 40 microseconds, 8 of them of a core.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import triton_python_backend_utils as pb_utils

from lazuli.metrics.samples import COUNTER, Labels, Sample, gauge
from lazuli.triton.protocol import instance_name

_log = logging.getLogger(__name__)
_INTERVAL_S = 1.0
# What a process that was killed or stopped has published stays as it was; only this tells.
_PUBLISHED_AT = gauge("lazuli_published_timestamp_seconds", "When the metrics of this model were brought up to date.")


class Exporter:
    """Publishes what a function returns, until it is closed."""

    def __init__(self, collect: Callable[[], Sequence[Sample]], labels: Mapping[str, str]) -> None:
        """Publish once, then in the background.

        Args:
            collect: Returns samples, in the order in which they are to change.
            labels: Added to those of each sample.

        Raises:
            Exception: If this server has no metrics.
        """
        self._collect = collect
        self._labels = dict(labels)
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, Labels], Any] = {}
        self._published: dict[tuple[str, Labels], float] = {}
        self._closed = threading.Event()
        self._failed = False
        self.publish()
        self._thread = threading.Thread(target=self._run, name="lazuli-metrics", daemon=True)
        self._thread.start()

    def publish(self) -> None:
        """Publish what has changed."""
        now = time.time()  # what happened before is counted
        for sample in (*self._collect(), _PUBLISHED_AT.sample(now)):
            key = sample.family.name, sample.labels
            before = self._published.get(key)
            if before is None:
                self._metrics[key] = self._make_metric(sample)
                before = self._published[key] = 0.0 if sample.family.kind == COUNTER else math.nan
            if sample.value == before:
                continue
            if sample.family.kind == COUNTER:
                self._metrics[key].increment(sample.value - before)
            else:
                self._metrics[key].set(sample.value)
            self._published[key] = sample.value

    def close(self) -> None:
        """End the thread and take the metrics back, those of a family before the family."""
        self._closed.set()
        self._thread.join()
        self._metrics.clear()
        self._families.clear()

    def _make_metric(self, sample: Sample) -> Any:
        family = sample.family
        if family.name not in self._families:
            kind = pb_utils.MetricFamily.COUNTER if family.kind == COUNTER else pb_utils.MetricFamily.GAUGE
            self._families[family.name] = pb_utils.MetricFamily(
                name=family.name, description=family.description, kind=kind
            )
        return self._families[family.name].Metric(labels={**self._labels, **dict(sample.labels)})

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            try:
                self.publish()
                self._failed = False
            except Exception:  # shared memory may be full for a while; what is not published yet is so the next time
                if not self._failed:
                    _log.exception("metrics could not be published")
                self._failed = True


def export(collect: Callable[[], Sequence[Sample]], args: Mapping[str, str], *, enabled: bool) -> Exporter | None:
    """Publish the metrics of a model, if they are wanted and this server has them.

    Args:
        collect: As of `Exporter`.
        args: Of the model's `initialize`.
        enabled: Whether they are wanted.
    """
    if not enabled:
        return None
    # While a model is reloaded, the old process and the new one publish side by side. Were their labels equal, Triton
    # 24.10 would give both the same metric, free it with the first and crash with the second.
    labels = {
        "model": args.get("model_name", ""),
        "model_instance": instance_name(args),
        "process": str(os.getpid()),
    }
    try:
        return Exporter(collect, labels)
    except Exception as error:  # what is served does not depend on them
        _log.warning("no metrics of this model: %s", error)
        return None
