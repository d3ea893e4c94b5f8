"""A waiter that keeps the vectors of its answer."""

import numpy as np

from lazuli.request import Part
from waiter import Waiter


class KeepingWaiter(Waiter):
    """`vectors` is there after `wait`."""

    vectors: np.ndarray

    def send(self, part: Part, *, final: bool) -> None:
        """Copy the vectors: their buffer is used again as soon as this returns."""
        self.vectors = part.outputs["embedding"].copy()
        super().send(part, final=final)
