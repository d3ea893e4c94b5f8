"""Who hears of the requests of a model: the log, and the tracer if there is one.

Takes what `RequestTrace` has gathered, and writes lines and spans of it. Knows nothing of their form.
"""

import logging
import time
from typing import TYPE_CHECKING

from lazuli.errors import LazuliError, ReplyError
from lazuli.logs.settings import ALL, ERRORS, LogSettings
from lazuli.metrics.recorder import OK, outcome_of
from lazuli.tracing.context import read_context
from lazuli.tracing.request_trace import RequestTrace

if TYPE_CHECKING:
    from lazuli.tracing.spans import Tracer

_log = logging.getLogger(__name__)
# Callers choose ids, of any length.
_MOST_OF_ID = 100


class Observer:
    """Hears of all requests of a model.

    Attributes:
        traces: Whether steps are to be noted.
    """

    def __init__(self, settings: LogSettings, tracer: "Tracer | None" = None) -> None:
        """Say who wants to know.

        Args:
            settings: Which requests are logged.
            tracer: Gets those that belong to a trace.
        """
        self._settings = settings
        self._tracer = tracer
        self.traces = tracer is not None

    def begin(self, request_id: str, parameters: str, of_server: str | None = None) -> RequestTrace:
        """A request arrived.

        Args:
            request_id: Its id.
            parameters: As JSON.
            of_server: As of `read_context`.
        """
        context = read_context(parameters, of_server) if self.traces else {}
        return RequestTrace(self, request_id, parameters, context)

    def ended(self, trace: RequestTrace, rows: int, tokens: int | None, error: BaseException | None) -> None:
        """A request ended."""
        if error is None and not trace.context and self._settings.requests != ALL:
            return
        ended = time.monotonic()
        outcome = OK if error is None else outcome_of(error)
        counts = {"rows": rows} if tokens is None else {"rows": rows, "tokens": tokens}
        if self._is_logged(error):
            self._write(trace, ended - trace.started, outcome, counts, error)
        if self._tracer is not None and trace.context:
            self._tracer.trace(trace, ended, outcome, counts)

    def close(self) -> None:
        """Hand over what is left."""
        if self._tracer is not None:
            self._tracer.close()

    def _is_logged(self, error: BaseException | None) -> bool:
        if error is None:
            return self._settings.requests == ALL
        return self._settings.requests in (ERRORS, ALL) or _is_fault(error)

    def _write(
        self,
        trace: RequestTrace,
        seconds: float,
        outcome: str,
        counts: dict[str, int],
        error: BaseException | None,
    ) -> None:
        ids = {"request_id": trace.request_id[:_MOST_OF_ID], "trace_id": trace.trace_id()}
        fields: dict[str, object] = {name: value for name, value in ids.items() if value}
        fields |= {"outcome": outcome, **counts, "duration_ms": round(1000 * seconds, 3)}
        if error is None:
            _log.info("request answered", extra={"fields": fields})
            return
        if self._settings.content:
            fields["error"] = str(error)
        level = logging.ERROR if _is_fault(error) else logging.WARNING
        _log.log(level, "request failed", extra={"fields": fields})


def _is_fault(error: BaseException) -> bool:
    """Whether the server is to blame."""
    return not isinstance(error, LazuliError) or error.triton_code == "INTERNAL" or isinstance(error, ReplyError)
