"""What every suite is: a module with these functions."""

import argparse
from typing import Protocol

from comparison.side_by_side import SideBySide
from texts.lengths import Lengths


class Described(Protocol):
    """One module of this package; its docstring is the help."""

    __doc__: str | None

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Its own options."""

    def lengths(self, options: argparse.Namespace) -> list[Lengths]:
        """All lengths that it sends."""


class Suite(Described, Protocol):
    """One that gets its targets open."""

    def run(self, bench: SideBySide, options: argparse.Namespace) -> None:
        """Measure."""
