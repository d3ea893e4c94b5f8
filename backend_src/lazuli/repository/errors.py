"""The error of a command on models: what is wrong, and how to mend it.

Takes a message and a remedy; knows nothing of the command line but the exit code.
"""

from typing import ClassVar

from lazuli.launch.errors import LaunchError


class RepositoryError(LaunchError):
    """The name, the options, the checkpoint or the repository do not allow what was asked."""

    exit_code: ClassVar[int] = 2


class OutsideError(RepositoryError):
    """The hub, the network or the disk failed: the same command may do later."""

    exit_code: ClassVar[int] = 1
