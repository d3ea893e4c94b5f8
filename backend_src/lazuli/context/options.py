"""The options of requests for the vectors of chunks, as `options.py` has them for texts."""

from dataclasses import dataclass

from lazuli.errors import OptionError
from lazuli.options import RequestOptions


@dataclass(frozen=True)
class ContextOptions(RequestOptions):
    """Options of one request for chunks. A document is never cut: its last chunks would be left without a vector."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.truncate != "none":
            raise OptionError(
                f'truncate: must be "none" for chunks, got "{self.truncate}"; send a long document as several'
            )
