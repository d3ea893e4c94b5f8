"""The name of a checkpoint on the Hugging Face hub: org/name, or org/name@revision.

Takes a string; returns its parts. Asks nobody whether it exists.
"""

import re
from dataclasses import dataclass

_PATTERN = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?", re.ASCII)


@dataclass(frozen=True)
class HubName:
    """A repository of the hub, and the branch, tag or commit that is wanted; None is its main branch."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> "HubName | None":
        """Read a name; None if it cannot be one."""
        match = _PATTERN.fullmatch(text)
        return cls(match["repository"], match["revision"]) if match else None

    def __str__(self) -> str:
        return self.repository + (f"@{self.revision}" if self.revision else "")
