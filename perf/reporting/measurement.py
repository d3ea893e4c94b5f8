"""One measurement as one JSON line, with its raw samples, machine, commit and command.

Takes timings, writes `perf/results/<machine>/<name>.jsonl`. Knows nothing of what was measured.
"""

import argparse
import json
import math
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parents[1] / "results"


@dataclass
class Measurement:
    """One line of a result file; None where a key does not apply.

    Attributes:
        system: What was measured, with its version.
        level: `kernel` (one kernel), `engine` (in process) or `server` (through the network).
        suite: latency, throughput, concurrency, ...
        model: Checkpoint.
        dtype: Of the computation.
        attention: Backend.
        len: Tokens of a text, or a range.
        batch: Texts a request.
        concurrency: Requests in flight.
        protocol: How the server was reached.
        samples_ms: Every sample in milliseconds: of a request (latency), or of a whole pass (throughput).
        texts: Texts of one sample; None where that means nothing.
        tokens: Tokens of one sample.
        wall_s: Time of the whole run, where samples overlap; else the sum of samples counts.
    """

    system: str
    level: str
    suite: str
    model: str
    dtype: str
    samples_ms: list[float]
    attention: str | None = None
    len: int | str | None = None
    batch: int | None = None
    concurrency: int | None = None
    protocol: str | None = None
    texts: int | None = 1
    tokens: int | None = None
    wall_s: float | None = None
    note: str | None = None
    extra: dict[str, float] = field(default_factory=dict)

    def summary(self) -> str:
        """A line for the terminal."""
        line = json.loads(self.to_line())
        keys = ("suite", "system", "dtype", "protocol", "len", "batch", "concurrency")
        what = " ".join(f"{key}={line[key]}" for key in keys if key in line)
        rate = f", {line['emb_per_s']:.1f} texts/s" if "emb_per_s" in line else ""
        return f"{what}: p50 {line['p50_ms']:.2f} ms, p99 {line['p99_ms']:.2f} ms{rate}"

    def to_line(self) -> str:
        """The JSON line, with percentiles, rates, machine, torch, commit and command added."""
        samples = np.array(self.samples_ms)
        p50, p90, p99 = np.percentile(samples, [50, 90, 99])
        # Rates of separate samples are from their median: one stall of the machine is not the system's.
        per_second = len(samples) / self.wall_s if self.wall_s else 1e3 / p50
        line = {key: value for key, value in asdict(self).items() if value not in (None, {})}
        line |= {"p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": samples.max()}
        if self.texts is not None:
            line["emb_per_s"] = self.texts * per_second
        if self.tokens is not None:
            line["tokens_per_s"] = self.tokens * per_second
        line |= provenance()
        return json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in line.items()})


@dataclass
class Accuracy:
    """One line of a result file about how near an output is to a reference; None where a key does not apply.

    Attributes:
        system: What was measured, with its version.
        model: Checkpoint.
        dtype: Of the computation.
        reference: What it was compared with.
        output: `vectors`, `sparse`, `multi` or `score`.
        len: Tokens of a text, or a range.
        texts: How many.
        note: What weights.
        min_cosine: The least of all texts, or of all tokens where each has a vector.
        mean_cosine: Their mean.
        other_cosine: How alike vectors of different texts are, for comparison.
        max_difference: The largest between two scores.
        spread: The standard deviation of the scores, for comparison.
    """

    system: str
    model: str
    dtype: str
    reference: str
    output: str
    len: int | str
    texts: int
    note: str | None = None
    min_cosine: float | None = None
    mean_cosine: float | None = None
    other_cosine: float | None = None
    max_difference: float | None = None
    spread: float | None = None
    level: str = "engine"
    suite: str = "accuracy"

    def summary(self) -> str:
        """A line for the terminal."""
        names = ("min_cosine", "mean_cosine", "other_cosine", "max_difference", "spread")
        values = [f"{name}={value:.8f}" for name in names if (value := getattr(self, name)) is not None]
        return f"{self.model} {self.output} {self.dtype}: {', '.join(values)}"

    def to_line(self) -> str:
        """The JSON line, with machine, torch, commit and command added."""
        line = {key: value for key, value in asdict(self).items() if value is not None} | provenance()
        return json.dumps({key: round(value, 9) if isinstance(value, float) else value for key, value in line.items()})


def write(machine: str, name: str, measurements: Sequence[Measurement | Accuracy], results: Path = RESULTS) -> Path:
    """Write `<results>/<machine>/<name>.jsonl`, replacing what was there; returns the path."""
    path = results / machine / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(measurement.to_line() + "\n" for measurement in measurements), encoding="utf-8")
    return path


def positive(text: str) -> int:
    """A whole number above 0, for arguments of commands."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}, but it must be at least 1")
    return number


def positive_number(text: str) -> float:
    """A number above 0 that has an end, for arguments of commands."""
    number = float(text)
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{text}, but it must be a number above 0")
    return number


def file_name(text: str) -> str:
    """A name that stays in its folder, for arguments of commands."""
    if not text.strip() or "/" in text or text in (".", ".."):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a file or folder")
    return text


def describe_machine() -> str:
    """CPU model, cores that may be used and, where there is one, the GPU."""
    import os

    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line.split(":", 1)[1].strip() for line in info.splitlines() if "model name" in line), "?")
    features = [name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if f" {name}" in info]
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {features[0] if features else platform.machine()}{_gpu()}"


@cache
def provenance() -> dict[str, str | None]:
    """Machine, torch, commit and command, as keys of a line; found once, as asking takes a while."""
    return {"machine": describe_machine(), "torch": _version("torch"), "commit": _find_commit(), "command": _command()}


def _gpu() -> str:
    try:
        import torch
    except ImportError:
        return ""
    return f", {torch.cuda.get_device_name(0)}" if torch.cuda.is_available() else ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _command() -> str:
    """What was typed, but for the name of Python."""
    return shlex.join(sys.argv)


def _find_commit() -> str:
    """The commit, with `+` where the working tree differs from it; `COMMIT` in the environment wins."""
    import os

    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]
    folder = Path(__file__).parents[1]
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True)
    changes = subprocess.run(
        ["git", "status", "--porcelain", "--", "../backend_src", "../client", "../model_repository"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "") if head.returncode == 0 else "unknown"
