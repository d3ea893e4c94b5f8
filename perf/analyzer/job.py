"""One run of NVIDIA's perf_analyzer against a live server.

Takes a `Job`; returns the time of each of its requests. Knows nothing of sweeps or result files.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.binary import find_perf_analyzer

PROTOCOLS = ("grpc", "http", "stream")
# It ends when three windows agree. On a shared machine they never do, so any three will do.
_WINDOWS = 3
_ANY = "999"
_MOST_THREADS = 16
# What it says of a window without a request that it could count.
_UNSTABLE = "Failed to obtain stable measurement"
# Beyond the windows: it looks for the server and the model, and waits for what is still in flight.
_GRACE_S = 120.0


@dataclass(frozen=True)
class Concurrency:
    """A closed loop: so many requests are always in flight."""

    requests: int

    @property
    def arguments(self) -> list[str]:
        """As perf_analyzer wants them."""
        return ["--concurrency-range", str(self.requests)]


@dataclass(frozen=True)
class Rate:
    """An open loop: requests go out on a schedule, however many are still unanswered.

    Attributes:
        per_second: Requests a second.
        distribution: `poisson` or `constant`.
    """

    per_second: float
    distribution: str

    @property
    def arguments(self) -> list[str]:
        """As perf_analyzer wants them."""
        wanted = ["--request-rate-range", f"{self.per_second:g}", "--request-distribution", self.distribution]
        # Asynchronous, or else a thread that waits for its answer would be late for its next request.
        return [*wanted, "--max-threads", str(_MOST_THREADS), "--async"]


@dataclass(frozen=True)
class Job:
    """What is sent where.

    Attributes:
        model: Name of the model; over `stream` one that answers in parts.
        protocol: Of `PROTOCOLS`.
        address: host:port.
        inputs: Of each row the texts by input; they are sent again and again.
        batch: Rows of a request.
        load: How many requests, and when.
        seconds: Length of a window, of which there are three.
    """

    model: str
    protocol: str
    address: str
    inputs: Sequence[Mapping[str, str]]
    batch: int
    load: Concurrency | Rate
    seconds: float


@dataclass(frozen=True)
class AnalyzerResult:
    """What came of it.

    Attributes:
        samples_ms: Time of each request, from when it was sent to its last answer.
        wall_s: From the first request to the last answer.
    """

    samples_ms: list[float]
    wall_s: float


def run(job: Job) -> AnalyzerResult:
    """Run it.

    Raises:
        RuntimeError: If perf_analyzer fails, or an answer was an error.
    """
    binary, environment = find_perf_analyzer()
    with tempfile.TemporaryDirectory(prefix="lazuli-analyzer-") as folder:
        data, export = Path(folder) / "input.json", Path(folder) / "export.json"
        data.write_text(json.dumps(data_of(job)), encoding="utf-8")
        command = [str(binary), *arguments_of(job), "--input-data", str(data), "--profile-export-file", str(export)]
        timeout_s = _WINDOWS * job.seconds + _GRACE_S
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)
        if done.returncode != 0 or not export.is_file():
            if _UNSTABLE in done.stdout:
                raise RuntimeError(
                    f"no request began and was answered within a window of {job.seconds:g} s: "
                    "the load is more than the server can take, or needs more --seconds"
                )
            raise RuntimeError(f"perf_analyzer failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        # It writes the bytes of the tensors into its JSON as they are; only the times are read here.
        return read_export(json.loads(export.read_text(encoding="latin-1"), strict=False))


def arguments_of(job: Job) -> list[str]:
    """Those that say what is measured."""
    protocol = ["-i", "grpc", "--streaming"] if job.protocol == "stream" else ["-i", job.protocol]
    if job.protocol == "stream" and isinstance(job.load, Concurrency):
        protocol.append("--async")
    windows = ["--measurement-interval", str(int(job.seconds * 1e3)), "--max-trials", str(_WINDOWS)]
    return [
        *("-m", job.model, "-u", job.address, "-b", str(job.batch)),
        *protocol,
        *job.load.arguments,
        *(*windows, "--stability-percentage", _ANY),
    ]


def data_of(job: Job) -> dict[str, Any]:
    """The rows as perf_analyzer reads them."""
    return {"data": [{name: [text] for name, text in row.items()} for row in job.inputs]}


def read_export(content: Mapping[str, Any]) -> AnalyzerResult:
    """Times out of what perf_analyzer wrote.

    Raises:
        RuntimeError: If there are none.
    """
    requests = [request for experiment in content["experiments"] for request in experiment["requests"]]
    # A request has several times where its answer came in parts, and none where it was not answered in time.
    spans = [(request["timestamp"], max(request["response_timestamps"])) for request in requests if _answered(request)]
    if not spans:
        raise RuntimeError("perf_analyzer saw no answer; give it more --seconds")
    wall_ns = max(end for _, end in spans) - min(start for start, _ in spans)
    return AnalyzerResult([(end - start) / 1e6 for start, end in spans], wall_ns / 1e9)


def _answered(request: Mapping[str, Any]) -> bool:
    return bool(request["response_timestamps"])
