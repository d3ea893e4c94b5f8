"""The exceptions of the backend, each with the Triton error code that a client will see.

LazuliError                INTERNAL
├── ConfigError            INVALID_ARG   a parameter or a checkpoint is unusable; raised at start
├── InputError             INVALID_ARG   the caller's fault: names field, row, value and limit
│   └── OptionError        INVALID_ARG   an unknown request parameter, or a bad value of a known one
├── OverloadedError        UNAVAILABLE   too much waits already, or for too long; send the request elsewhere or later
├── DeadlineExceededError  CANCELLED     the time that the caller gave is over; Triton has no code of its own for it
├── RequestCancelledError  CANCELLED     the caller gave the request up while it waited
├── ShuttingDownError      UNAVAILABLE   the server is stopping; send the request elsewhere
├── ReplyError             UNAVAILABLE   the answer could not be sent; send the request again later
├── NonFiniteError         INTERNAL      the model computed NaN or Inf for a row, or what float16 cannot hold
└── DeviceError            INTERNAL      the device failed or ran out of memory
"""

from typing import ClassVar


class LazuliError(Exception):
    """Base of all errors that Lazuli raises on purpose."""

    triton_code: ClassVar[str] = "INTERNAL"


class ConfigError(LazuliError):
    """A parameter of `config.pbtxt`, or the checkpoint that it names, cannot be used."""

    triton_code = "INVALID_ARG"


class InputError(LazuliError):
    """A request holds a value that cannot be embedded."""

    triton_code = "INVALID_ARG"


class OptionError(InputError):
    """A request parameter is unknown or malformed."""


class OverloadedError(LazuliError):
    """The request arrived while as much waited as may, or it waited for as long as one may."""

    triton_code = "UNAVAILABLE"


class DeadlineExceededError(LazuliError):
    """The request was not computed, or not to its end, within the time that the caller gave."""

    triton_code = "CANCELLED"


class RequestCancelledError(LazuliError):
    """The caller gave the request up; nobody will read this."""

    triton_code = "CANCELLED"


class ShuttingDownError(LazuliError):
    """The request arrived while the engine was stopping."""

    triton_code = "UNAVAILABLE"


class ReplyError(LazuliError):
    """The answer is there, but Triton did not take it: shared memory is full, for one."""

    triton_code = "UNAVAILABLE"


class NonFiniteError(LazuliError):
    """The model computed a vector that holds NaN or Inf, or a value that the type asked for cannot hold."""


class DeviceError(LazuliError):
    """The forward pass failed on the device."""
