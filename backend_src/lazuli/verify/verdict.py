"""Measures with their limits, and what they say together.

Takes numbers, returns a table for a person or an object for a program.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """One measure with its limit.

    Attributes:
        key: Its name for programs.
        name: What was measured.
        value: How it came out.
        limit: What it is held against; None if it is only shown.
        passed: Whether it is within the limit.
    """

    key: str
    name: str
    value: float
    limit: float | None = None
    passed: bool = True

    @classmethod
    def at_least(cls, key: str, name: str, value: float, limit: float | None) -> "Check":
        """One that must not be below its limit, if there is one."""
        return cls(key, name, value, limit, limit is None or bool(value >= limit))

    @classmethod
    def at_most(cls, key: str, name: str, value: float, limit: float) -> "Check":
        """One that must not be above its limit."""
        return cls(key, name, value, limit, bool(value <= limit))

    def line(self) -> str:
        """For a person."""
        limit = "" if self.limit is None else f"limit {self.limit:.6g}"
        outcome = "" if self.limit is None else "ok" if self.passed else "FAILED"
        return f"{self.name:<44} {self.value:>10.6f}  {limit:<16} {outcome}".rstrip()


@dataclass(frozen=True)
class Verdict:
    """All measures.

    Attributes:
        title: What was compared.
        checks: The measures.
    """

    title: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether none is beyond its limit."""
        return all(check.passed for check in self.checks)

    def table(self) -> str:
        """For a person."""
        lines = [check.line() for check in self.checks]
        return "\n".join([self.title, *lines, "passed" if self.passed else "FAILED"])

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        values = {check.key: float(check.value) for check in self.checks}
        return {"passed": self.passed, "compared": self.title, **values}
