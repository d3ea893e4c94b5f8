"""Small arrays of the host, to where a pass computes."""

import numpy as np
import torch


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Copy an array without waiting for the device.

    The memory is not pinned: it is copied to where the driver takes it from before this returns, so nobody has to keep
    it, and the copy itself takes its turn among the kernels.
    """
    return torch.from_numpy(array).to(device, non_blocking=True)
