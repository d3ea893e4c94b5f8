"""What the log is to be like, from the environment.

Takes variables, returns a frozen dataclass. The environment and not `config.pbtxt`, since it is a matter of the whole
server, and what goes wrong with a configuration is logged, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from lazuli.errors import ConfigError

JSON, TEXT = "json", "text"
FAULTS, ERRORS, ALL = "faults", "errors", "all"
_CHOICES = {
    "LAZULI_LOG_FORMAT": (JSON, TEXT),
    "LAZULI_LOG_REQUESTS": (FAULTS, ERRORS, ALL),
    "LAZULI_LOG_CONTENT": ("off", "on"),
}


@dataclass(frozen=True)
class LogSettings:
    """How to log.

    Attributes:
        format: `json` writes lines of JSON to standard error; `text` goes through Triton's own log.
        requests: Which requests get a line when they end: `faults` of the server, all `errors`, or `all`.
        content: Whether lines may hold what requests hold, as messages of errors do.
    """

    format: str = JSON
    requests: str = FAULTS
    content: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read `LAZULI_LOG_FORMAT`, `LAZULI_LOG_REQUESTS` and `LAZULI_LOG_CONTENT`; the first choice is the default.

        Raises:
            ConfigError: If one has another value.
        """
        chosen = {name: environ.get(name) or choices[0] for name, choices in _CHOICES.items()}
        for name, choices in _CHOICES.items():
            if chosen[name] not in choices:
                raise ConfigError(f"{name}: {chosen[name]!r}, but it must be one of {', '.join(choices)}")
        form, requests, content = chosen.values()
        return cls(form, requests, content == "on")
