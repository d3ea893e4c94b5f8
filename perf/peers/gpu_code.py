"""The machine code of one kind of GPU within a library that has that of many.

Takes and returns a library's bytes; no byte changes its place. What is for other GPUs becomes zeros, which compress to
nothing: a driver goes by the headers, which stay, and never reads what is not for its GPU.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\x50\xed\x55\xba"
# After the magic: version, size of this header, size of all entries.
_CONTAINER = struct.Struct("<4sHHQ")
# Kind, version, size of this header, size of the code; 12 bytes on, what GPUs it is for.
_ENTRY = struct.Struct("<HHIQ12xI")
_ASSEMBLY, _MACHINE_CODE = 1, 2


@dataclass(frozen=True)
class _Entry:
    kind: int
    architecture: int
    start: int
    size: int


def keep_gpu(library: bytes, architecture: int) -> bytes:
    """Blank the code that a GPU of this architecture does not run.

    Where a container has no machine code for it, the assembly that its driver could compile stays.

    Args:
        library: An ELF file, whose containers of GPU code lie in it as they are.
        architecture: 90 for sm_90 and sm_90a.

    Raises:
        ValueError: If a container is not as expected.
    """
    blanked = bytearray(library)
    for entries in _containers(library):
        machine_code = [entry for entry in entries if (entry.kind, entry.architecture) == (_MACHINE_CODE, architecture)]
        assembly = [entry for entry in entries if entry.kind == _ASSEMBLY and entry.architecture <= architecture]
        for entry in entries:
            if entry not in (machine_code or assembly):
                blanked[entry.start : entry.start + entry.size] = bytes(entry.size)
    return bytes(blanked)


def _containers(library: bytes) -> Iterator[list[_Entry]]:
    place = library.find(_MAGIC)
    while place >= 0:
        _, version, header, size = _CONTAINER.unpack_from(library, place)
        # Code may have the same four bytes by chance.
        if (version, header) == (1, _CONTAINER.size):
            yield list(_entries(library, place + header, place + header + size))
            place += header + size
        else:
            place += len(_MAGIC)
        place = library.find(_MAGIC, place)


def _entries(library: bytes, place: int, end: int) -> Iterator[_Entry]:
    while place < end <= len(library):
        kind, _, header, size, architecture = _ENTRY.unpack_from(library, place)
        yield _Entry(kind, architecture, place + header, size)
        place += header + size
    if place != end:
        raise ValueError(f"a container of GPU code ends at byte {end}, its last entry at {place}")
