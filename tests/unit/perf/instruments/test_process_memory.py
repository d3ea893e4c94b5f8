"""Memory of this very process and a child."""

import os
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory

from instruments.process_memory import Memory, MemoryWatch, family, read_memory

MIB = 2**20
_CHILD = "import sys; held = b'x' * (64 * 2**20); print(len(held), flush=True); sys.stdin.read()"


def test_a_child_belongs_to_the_family_and_its_memory_counts():
    child = subprocess.Popen([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        child.stdout.readline()
        parent = child.pid
        assert parent in family(os.getpid())
        memory = read_memory(parent)
        child.stdin.close()
    assert memory.processes == 1
    assert 64 < memory.pss_mib <= memory.rss_mib < 200


def test_shared_memory_counts_what_is_there():

    before = read_memory(os.getpid()).shm_mib
    shared = SharedMemory(create=True, size=8 * MIB)
    try:
        shared.buf[: 4 * MIB] = b"x" * (4 * MIB)
        assert 4 <= read_memory(os.getpid()).shm_mib - before < 8
    finally:
        shared.close()
        shared.unlink()


def test_a_watch_keeps_the_largest():

    with MemoryWatch(os.getpid()) as watch:
        pass
    assert watch.peak.processes >= 1
    assert Memory(1, 5, 0, 0, 1).largest(Memory(2, 3, 0, 0, 1)) == Memory(2, 5, 0, 0, 1)


def test_of_a_process_that_is_gone_nothing_is_held():
    assert read_memory(2**22 + 1).rss_mib == 0
