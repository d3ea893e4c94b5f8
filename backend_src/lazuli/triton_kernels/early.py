"""Early launch: a kernel begins while the one before it on the stream still runs (programmatic dependent launch).

It may then compute addresses and read what does not change, and waits before the rest. The rules:

- Before `wait_for_previous` a kernel writes nothing: the kernel before it may still read that memory, which a pass uses
  again and again. And it reads nothing but what was there before the kernel ahead of it was launched: weights, tables,
  and the inputs of a pass, which come by a copy; behind a copy no kernel begins early.
- Every program waits, one with nothing to do as well: when a kernel is over, all before it must be.
- `let_next_start` comes after the wait. The next kernel starts once every program has come by, or has ended. So its
  programs never take the place of some that have not begun; but they go where there is room first, so they start late
  where it matters that they spread evenly. A kernel need not call it if only products of the library follow, which wait
  for its end.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

_FROM = (9, 0)  # Hopper
enabled = True  # for measurements: looked at with each launch, so at a graph's capture


def early_launch(device: torch.device) -> bool:
    """Whether kernels start early there."""
    return enabled and _is_capable(device)


def launch_options(device: torch.device) -> dict[str, Any]:
    """Arguments for the launch of a kernel that has the constant EARLY."""
    return {"EARLY": True, "launch_pdl": True} if early_launch(device) else {"EARLY": False}


@cache
def _is_capable(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FROM


@triton.jit
def wait_for_previous(EARLY: tl.constexpr):
    """Wait until the kernel before this one, and all before that, have ended."""
    if EARLY:
        gdc_wait()


@triton.jit
def let_next_start(EARLY: tl.constexpr):
    """Let the next kernel start once all programs have come by."""
    if EARLY:
        gdc_launch_dependents()
