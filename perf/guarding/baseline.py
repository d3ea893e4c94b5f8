"""What the hot paths took when somebody last accepted it, and the rule by which more is too much.

Takes counts by path; reads and writes `guard_baseline.json`; returns what has grown. Knows nothing of how to count.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

FILE = Path(__file__).parents[1] / "guard_baseline.json"
# Of what each path is allowed to take more: the tolerance, as a share of it, or this much if that is more.
_LEAST_GROWTH = {"instructions": 2, "c_calls": 0, "peak_bytes": 512}
_PACKAGES = ("numpy", "protobuf", "tritonclient")
Counts = Mapping[str, Mapping[str, int] | None]


@dataclass(frozen=True)
class Change:
    """One number of one path that differs by more than the tolerance.

    Attributes:
        path: Its name.
        unit: What was counted.
        before: Count then; None where the path is new.
        now: Count now; None where the path is gone.
    """

    path: str
    unit: str
    before: int | None
    now: int | None

    @property
    def is_growth(self) -> bool:
        """Whether it is more work than before, or cannot be compared."""
        return self.before is None or self.now is None or self.now > self.before

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.path}: new"
        if self.now is None:
            return f"{self.path}: gone"
        share = f" ({self.now / self.before - 1:+.1%})" if self.before else ""
        return f"{self.path}: {self.before:,} to {self.now:,} {self.unit.replace('_', ' ')}{share}"


def compare(before: Counts, now: Counts, tolerance: float) -> Iterator[Change]:
    """What differs by more than the tolerance, in either direction."""
    for path in dict.fromkeys([*before, *now]):
        then, today = before.get(path), now.get(path)
        if then is None or today is None:
            if then is not today:
                yield Change(path, "", 0 if then else None, 0 if today else None)
            continue
        for unit, least in _LEAST_GROWTH.items():
            if abs(today[unit] - then[unit]) > max(tolerance * then[unit], least):
                yield Change(path, unit, then[unit], today[unit])


def describe_environment() -> dict[str, str]:
    """What the counts depend on beside the code: bytecode is another in each Python, and libraries are Python too."""
    python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    return {"python": python, **{package: _version(package) for package in _PACKAGES}}


def read(file: Path = FILE) -> tuple[dict[str, str], Counts]:
    """The environment in which it was counted, and the counts; both empty if there is no file."""
    if not file.is_file():
        return {}, {}
    content = json.loads(file.read_text(encoding="utf-8"))
    return content["environment"], content["paths"]


def write(counts: Counts, file: Path = FILE) -> None:
    """Accept the counts."""
    content = {"environment": describe_environment(), "paths": counts}
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
