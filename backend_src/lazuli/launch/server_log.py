"""Reads the server's log: shows what matters while it grows, and finds why a start failed.

Takes lines of text; prints or returns lines. Does not know about processes or models.
"""

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

from lazuli.launch.options import LogLevel

_HEAD = re.compile(r"^([EWIVF])\d{4} \d\d:\d\d:\d\d\.\d+ \d+ (\S+)\] (.*)$")
# A line of a model, in JSON. In what else it says, quotes have a backslash before them.
_OWN = re.compile(r'^\{"time": ".*[{ ]"level": "(\w+)"')
_SEVERITIES = {
    LogLevel.ERROR: "EF",
    LogLevel.WARNING: "EFW",
    LogLevel.INFO: "EFWI",
    LogLevel.VERBOSE: "EFWIV",
}
# Said at every start without a GPU, at every stop with an idle client, and what the report of a failed start
# says better.
_NOISE = re.compile(
    r"CudaDriverHelper has not been initialized|pinned.*memory|CUDA driver version is insufficient"
    r"|no CUDA-capable device|DCGM unable to start"
    r"|Exit timeout expired"
    r"|Failed to create instance|failed to load '|which has no loaded version"
)
_FAILED_LOAD = re.compile(r"failed to load '(?P<model>[^']+)' version \d+: (?P<reason>.*)", re.DOTALL)
_OWN_ERROR = "ConfigError: "
_IN_FLIGHT = re.compile(r"Found (\d+) model versions that have in-flight inferences")
_POLL_S = 0.1


class LogFilter:
    """Decides line by line what reaches the terminal."""

    def __init__(self, level: LogLevel) -> None:
        self._shown = _SEVERITIES[level]
        self._everything = level in (LogLevel.INFO, LogLevel.VERBOSE)
        self._showing = self._everything

    def shows(self, line: str) -> bool:
        """Whether to show this line; a line without a head (traceback, table) goes with the one before it."""
        head = _HEAD.match(line)
        own = _OWN.match(line)
        if own:
            self._showing = self._everything or own[1][0].upper() in self._shown
        elif head:
            severity, _, message = head.groups()
            ours = message.startswith(('"lazuli', "lazuli"))
            noise = not self._everything and _NOISE.search(message) is not None
            self._showing = (severity in self._shown or ours) and not noise
        return self._showing


class LogFollower:
    """Copies a growing log file to the terminal, from a thread of its own."""

    def __init__(self, path: Path, level: LogLevel, show: Callable[[str], None]) -> None:
        self._path = path
        self._filter = LogFilter(level)
        self._show = show
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="lazuli-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Show what is left and end the thread."""
        self._end.set()
        self._thread.join()

    def _follow(self) -> None:
        with self._path.open(encoding="utf-8", errors="replace") as log:
            partial = ""
            while True:
                last = self._end.is_set()
                *lines, partial = (partial + log.read()).split("\n")
                for line in lines:
                    if self._filter.shows(line):
                        self._show(line)
                if last:
                    return
                self._end.wait(_POLL_S)


def failure_reason(path: Path) -> str:
    """Why the server ended, in the words of its log.

    Returns:
        The models that failed to load with their reasons, else the last error, else the last lines.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    failed = [match for line in lines if (match := _FAILED_LOAD.search(_message(line)))]
    if failed:
        reasons = {match["model"]: _without_code(match["reason"]) for match in failed}
        return "\n".join(f"model {model}: {reason}" for model, reason in _first_of_each(reasons).items())
    errors = [_message(line) for line in lines if line.startswith(("E", "F", "error:"))]
    errors = [error for error in errors if not _NOISE.search(error)]
    return errors[-1] if errors else "\n".join(lines[-10:]) or "it wrote nothing"


def all_were_answered(path: Path) -> bool:
    """Whether a server that was stopped had no inference left when it looked last."""
    counts = _IN_FLIGHT.findall(path.read_text(encoding="utf-8", errors="replace"))
    return bool(counts) and int(counts[-1]) == 0


def _first_of_each(reasons: dict[str, str]) -> dict[str, str]:
    """Drop models that fail for a reason already given, as the two doors do."""
    kept: dict[str, tuple[str, str]] = {}
    for model, reason in reasons.items():
        kept.setdefault(_headline(reason), (model, reason))
    return dict(kept.values())


def _headline(reason: str) -> str:
    return reason.split("\n", 1)[0]


def _without_code(reason: str) -> str:
    text = re.sub(r"^(Internal|Invalid argument|Unavailable|Unsupported): ", "", reason).strip()
    # Our own complaints say all in one line; where in the code they were raised is of use for other errors only.
    return text if not text.startswith(_OWN_ERROR) else _headline(text).removeprefix(_OWN_ERROR)


def _message(line: str) -> str:
    """The message of a line, unquoted: Triton writes it as a JSON string."""
    head = _HEAD.match(line)
    text = head.group(3) if head else line
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            return text.strip('"')
    return text
