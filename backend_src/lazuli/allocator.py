"""Keeps memory that activations have used, instead of handing it back to the system after every operation.

By default glibc maps large blocks anew each time, and the kernel fills each with zeros: on a CPU that is 5 to 20 % of
the time of a batch. With these settings a process stays at the size of its largest batch.
"""

import ctypes
import logging
import platform

_log = logging.getLogger(__name__)

# The names and numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_SETTINGS = {
    _M_MMAP_THRESHOLD: 1 << 30,
    _M_TRIM_THRESHOLD: 1 << 30,
    _M_TOP_PAD: 64 << 20,
    # The arenas of further threads cannot hold blocks of more than 64 MB; one arena for all can.
    _M_ARENA_MAX: 1,
}


def keep_memory() -> bool:
    """Apply the settings to this process; False, with a log line, where malloc is not glibc's."""
    if platform.libc_ver()[0] != "glibc":
        _log.info("malloc is not glibc's; its settings stay as they are")
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(name, value) == 1 for name, value in _SETTINGS.items())
