"""Small pieces that all models share between Triton's objects and ours.

Takes and returns `pb_utils` objects. Knows nothing of what is computed.
"""

import gc
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from lazuli.errors import InputError, LazuliError, OptionError
from lazuli.logs.lines import JsonFormatter, TextFormatter
from lazuli.logs.settings import JSON, LogSettings
from lazuli.logs.stderr_handler import StderrHandler


def read_parameters(args: dict[str, str]) -> dict[str, str]:
    """The `parameters` of a model's `config.pbtxt`, from the arguments of `initialize`."""
    entries = json.loads(args["model_config"]).get("parameters", {})
    return {key: entry["string_value"] for key, entry in entries.items()}


def read_gpu_index(args: dict[str, str]) -> int | None:
    """The GPU that Triton gave to this instance, or None."""
    return int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else None


def instance_name(args: Mapping[str, Any]) -> str:
    """What an instance is called in the log, in metrics and in spans.

    Triton 24.10 calls those that a group has on several GPUs the same, so the number of the GPU is added.
    """
    name = str(args.get("model_instance_name", ""))
    return f"{name}_gpu{args['model_instance_device_id']}" if args.get("model_instance_kind") == "GPU" else name


def count_instances(model_config: dict[str, Any]) -> int:
    """How many instances of a model there are, by its configuration as JSON."""
    groups = model_config.get("instance_group", [])
    return sum(int(group.get("count", 1)) * max(1, len(group.get("gpus", []))) for group in groups)


def read_tensor(request: Any, name: str) -> np.ndarray:
    """An input tensor as numpy.

    Raises:
        InputError: If it is missing.
    """
    array = find_tensor(request, name)
    if array is None:
        raise InputError(f"{name}: the input is missing")
    return array


def find_tensor(request: Any, name: str) -> np.ndarray | None:
    """An input tensor as numpy, or None if it is missing."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def count_rows(request: Any) -> int:
    """How many rows a request has that could not be answered; 0 if that cannot be told."""
    try:
        return len(request.inputs()[0].as_numpy())
    except Exception:  # whatever is wrong with it has its answer already
        return 0


def read_options(request: Any) -> str:
    """The request parameters, as JSON.

    Raises:
        OptionError: If they are not valid Unicode.
    """
    try:
        text: str = request.parameters()
    except UnicodeDecodeError as error:
        raise OptionError(f"parameters: not valid UTF-8 ({error.reason} at byte {error.start})") from None
    return text


def read_timeout_ms(request: Any) -> int | None:
    """Triton's own `timeout` of a request, in whole milliseconds, at least one; None if it has none.

    It is in microseconds, and unlike `priority` it reaches the steps of an ensemble.
    """
    timeout_us = int(request.timeout())
    return max(1, timeout_us // 1000) if timeout_us else None


def make_response(tensors: dict[str, np.ndarray]) -> Any:
    """A response out of output name and value."""
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in tensors.items()])


def make_error(error: Exception) -> Any:
    """A response that carries an error under its Triton code; unexpected ones are INTERNAL, and logged."""
    if not isinstance(error, LazuliError):
        logging.getLogger(__name__).error("unexpected error", exc_info=error, extra={"private": True})
        error = LazuliError(f"unexpected {type(error).__name__}: {error}")
    code = getattr(pb_utils.TritonError, error.triton_code)
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), code))


def forget_start() -> None:
    """Spare the garbage collector what was loaded at start: looking through it takes tens of milliseconds each time."""
    gc.collect()
    gc.freeze()


def log_to_triton(args: Mapping[str, str]) -> None:
    """Send log lines to the server's log: all of this package, and warnings of others.

    Args:
        args: Of the model's `initialize`.

    Raises:
        ConfigError: If a variable for the log has a value that there is not.
    """
    settings = LogSettings.from_environment(os.environ)
    handler: logging.Handler = StderrHandler() if settings.format == JSON else _TritonHandler()
    if settings.format == JSON:
        ids = {"model": args.get("model_name"), "instance": instance_name(args), "pid": os.getpid()}
        handler.setFormatter(JsonFormatter(ids, content=settings.content))
    else:
        handler.setFormatter(TextFormatter(content=settings.content))
    logging.getLogger().addHandler(handler)
    logger = logging.getLogger("lazuli")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _TritonHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            pb_utils.Logger.log_error(text)
        elif record.levelno >= logging.WARNING:
            pb_utils.Logger.log_warn(text)
        else:
            pb_utils.Logger.log_info(text)
