"""Several results that may still be on their way from the device, of sizes that differ from batch to batch.

Takes device tensors right after their kernels were queued, returns a handle whose `result()` waits for the copies.
Knows nothing of batches. `lazy_tensor.py` is the same for the one result of fixed shape that most batches have.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from lazuli.lazy_tensor import PinnedPool

Tensors = Mapping[str, torch.Tensor]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Computed:
    """What a pass leaves on the device.

    Attributes:
        tensors: By name; to be copied as they are.
        later: What has to see how much there is before it can be copied, and so has to wait for the pass; or None. It
            is called once, by the thread that waits.
    """

    tensors: Tensors
    later: Callable[[], Tensors] | None = None


class LazyTensors(Protocol):
    """Results that will be in host memory."""

    def result(self) -> Arrays:
        """Wait, and return arrays that belong to the caller. Call it exactly once."""


class HostTensors:
    """The results of a CPU, which are there already."""

    def __init__(self, computed: Computed) -> None:
        """Wrap them."""
        self._computed = computed

    def result(self) -> Arrays:
        """See `LazyTensors`."""
        later = self._computed.later() if self._computed.later is not None else {}
        return {name: tensor.numpy() for name, tensor in {**self._computed.tensors, **later}.items()}


class CudaTensors:
    """Results that a CUDA stream is computing and copying."""

    def __init__(
        self,
        computed: Computed,
        staging: torch.Tensor,
        staging_pool: PinnedPool,
        device: torch.device,
        *,
        spin: bool,
    ) -> None:
        """Queue the copies on the current stream and mark their end by an event. Does not synchronise.

        Args:
            computed: What to copy.
            staging: The pinned input of the same pass; the event says when the device is done with it.
            staging_pool: Where it goes back to.
            device: The GPU.
            spin: Whether `result()` keeps a core busy while it waits.
        """
        self._later = computed.later
        self._device = device
        self._staging = staging
        self._staging_pool = staging_pool
        self._device_tensors = computed.tensors  # the device reads them until the event
        self._host = {name: _pinned_like(tensor) for name, tensor in computed.tensors.items()}
        for name, tensor in computed.tensors.items():
            self._host[name].copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event(blocking=not spin)
        self._event.record()

    @torch.inference_mode()
    def result(self) -> Arrays:
        """See `LazyTensors`."""
        try:
            self._event.synchronize()
            arrays = {name: tensor.numpy() for name, tensor in self._host.items()}
            if self._later is not None:
                # Beside the passes that follow, not behind them.
                with torch.cuda.stream(torch.cuda.Stream(self._device)):
                    arrays |= {name: tensor.cpu().numpy() for name, tensor in self._later().items()}
            return arrays
        finally:
            self._later = None
            self._device_tensors = {}
            self._staging_pool.give_back(self._staging)


def _pinned_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
