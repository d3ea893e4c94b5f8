"""The figures of the gateway for Prometheus.

Takes finished requests and the state of the servers, returns text. With several processes they are added up through
files in the folder `PROMETHEUS_MULTIPROC_DIR`, which the command makes before they start.
"""

import os
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.replicas.pool import Pool
from lazuli_client.gateway.replicas.replica import State
from lazuli_client.gateway.timings import STAGES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """The figures of one process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "lazuli_gateway_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "lazuli_gateway_request_seconds", "Time of requests.", ["path"], buckets=_SECONDS, registry=registry
        )
        self._stages = Histogram(
            "lazuli_gateway_stage_seconds", "Time of stages.", ["stage"], buckets=_SECONDS, registry=registry
        )
        self._of_stage = {stage: self._stages.labels(stage) for stage in STAGES}
        self._rows = Counter("lazuli_gateway_rows", "Texts and pairs that were answered.", registry=registry)
        self._tokens = Counter("lazuli_gateway_tokens", "Tokens that the models read.", registry=registry)
        self._under_way = Gauge(
            "lazuli_gateway_requests_under_way", "Requests.", registry=registry, multiprocess_mode="livesum"
        )
        self._up = self._of_server("up", "Whether it gets work; 1 if every process says so.", "livemin")
        self._model_up = Gauge(
            "lazuli_gateway_server_model_up",
            "Whether it gets work for a model; 1 if every process says so.",
            ["server", "model"],
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._outstanding = self._of_server("outstanding_tokens", "Tokens that it has not answered.", "livesum")
        self._refusals = self._of_server("refusals", "How often it had too much to do.", "livesum")
        self._failures = self._of_server("failures", "How often it was taken out.", "livesum")

    def _of_server(self, name: str, text: str, mode: Literal["livemin", "livesum"]) -> Gauge:
        name = f"lazuli_gateway_server_{name}"
        return Gauge(name, text, ["server"], registry=self._registry, multiprocess_mode=mode)

    def begin(self) -> None:
        """Count a request that begins."""
        self._under_way.inc()

    def end(self, call: Call, path: str, status: int, seconds: float) -> None:
        """Count a request that `begin` has counted; `path` is one of ours, so that there are not too many."""
        self._under_way.dec()
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        for stage, value in call.timings.seconds.items():
            self._of_stage[stage].observe(value)
        if call.rows:
            self._rows.inc(call.rows)
            self._tokens.inc(call.tokens)

    def note_servers(self, pool: Pool) -> None:
        """Take down the state of the servers."""
        for replica in pool.replicas:
            self._up.labels(replica.address).set(replica.state is State.UP)
            for model in replica.problems:
                self._model_up.labels(replica.address, model).set(replica.is_fit(model))
            self._outstanding.labels(replica.address).set(replica.outstanding_tokens)
            self._refusals.labels(replica.address).set(replica.refusals)
            self._failures.labels(replica.address).set(replica.failures)

    def text(self) -> bytes:
        """All figures, of all processes."""
        registry = self._registry
        if os.environ.get(FOLDER):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
