"""A target as the command line names it, and what all targets of a run share.

Takes `KIND[=ADDRESS][,NAME=VALUE...]`; knows no kind.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_COMMAND = ",command="


@dataclass(frozen=True)
class TargetSpec:
    """One `--target`.

    Attributes:
        kind: Of `registry.KINDS`.
        address: URL or host:port; None for one that is started or runs in process.
        options: What else was said of it.
    """

    kind: str
    address: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def check_options(self, *known: str) -> None:
        """Refuse options that nobody reads.

        Raises:
            ValueError: If there is one.
        """
        unknown = sorted(set(self.options) - {*known, "label"})
        if unknown:
            raise ValueError(f"{self.kind} has no option {', '.join(unknown)}; it has {', '.join([*known, 'label'])}")


@dataclass(frozen=True)
class Settings:
    """What the targets of a run share.

    Attributes:
        checkpoint: A folder or a packaged checkpoint.
        device: Of those that we start; None for the best.
        dtype: Likewise.
        max_seq_length: Most tokens of a text; None for the checkpoint's own limit.
        environment: Added to that of a Lazuli server.
        log: Keeps the log of a server that we start.
        streams: Whether a Lazuli server that we start needs the door for streams.
    """

    checkpoint: str
    device: str | None = None
    dtype: str | None = None
    max_seq_length: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    streams: bool = False


def parse_target(text: str) -> TargetSpec:
    """For `--target`; `command=` takes the rest of the line, commas and all."""
    text, _, command = text.partition(_COMMAND)
    head, *pairs = text.split(",")
    kind, _, address = head.partition("=")
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(f"{pair!r} is not NAME=VALUE")
        options[name] = value
    if command:
        options["command"] = command
    return TargetSpec(kind, address or None, options)
