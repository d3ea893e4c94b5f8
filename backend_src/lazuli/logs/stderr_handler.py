"""Writes log lines to standard error.

Takes records; each becomes one write, so that lines of several threads and processes do not mix.
"""

import logging
import os

_STDERR = 2


class StderrHandler(logging.Handler):
    """Of a process that shares its standard error with others."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
            while line:  # a pipe may take less at once
                line = line[os.write(_STDERR, line) :]
        except Exception:
            self.handleError(record)
