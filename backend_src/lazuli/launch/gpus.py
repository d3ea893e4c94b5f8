"""Which GPUs the server sees.

Takes the device that was asked for and an environment; returns variables. Does not look for GPUs.
"""

import re
from collections.abc import Mapping

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpu_environment(device: str | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """Let the server see the one GPU that was asked for, or none.

    Triton makes an instance of an engine for each GPU that it sees, whatever device the engine then runs on: with
    `cuda:1` on a machine of eight GPUs, there would be eight engines on that one.

    Args:
        device: auto, cpu, cuda or cuda:N; None for auto.
        inherited: The environment so far, which may leave only some GPUs to be seen: N counts those.

    Returns:
        Variables to set; empty where all GPUs are wanted, or there is none of this number, as the engine will say.
    """
    if device == "cpu":
        return {_VISIBLE: ""}
    match = re.fullmatch(r"cuda:(\d+)", device or "")
    if match is None:
        return {}
    number, seen = int(match[1]), inherited.get(_VISIBLE)
    if seen is None:
        return {_VISIBLE: str(number), "LAZULI_DEVICE": "cuda"}
    names = [name.strip() for name in seen.split(",") if name.strip()]
    return {_VISIBLE: names[number], "LAZULI_DEVICE": "cuda"} if number < len(names) else {}
