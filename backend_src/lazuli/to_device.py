"""Small arrays of the host, to where a pass computes."""

import numpy as np
import torch


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Copy an array without waiting for the device.

    On a GPU it goes through page-locked memory that torch keeps until the copy is done: from other memory, what is
    larger than the driver's own buffer would be copied only once the kernels before have run.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
