"""The launcher's error: what is wrong, and how to mend it.

Takes a message and a remedy; knows nothing about the models' errors.
"""


class LaunchError(Exception):
    """The server cannot be started or kept running.

    Attributes:
        remedy: What the reader can do about it; may be empty.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class CrashError(LaunchError):
    """The server was ended by a signal before it served, or stood still: the machine, or the server, and no setting."""
