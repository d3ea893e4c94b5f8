"""A waiter that keeps the vectors of its answer."""

import numpy as np

from clients.waiter import Waiter
from lazuli.request import Part


class KeepingWaiter(Waiter):
    """`vectors` is there after `wait`."""

    vectors: np.ndarray

    def send(self, part: Part, *, final: bool) -> None:
        """Copy the vectors: their buffer is used again as soon as this returns."""
        self.vectors = part.outputs["embedding"].copy()
        super().send(part, final=final)
