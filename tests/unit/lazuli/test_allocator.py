"""allocator: glibc's malloc is told to keep what activations have used."""

import subprocess
import sys

from lazuli import allocator

# Allocates and frees 64 MB again and again; prints the page faults of the later rounds.
_PROGRAM = """
import resource, sys
import numpy as np
from lazuli.allocator import keep_memory
if sys.argv[1] == "keep":
    assert keep_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    np.ones(8 << 20)
before = faults()
for _ in range(5):
    np.ones(8 << 20)
print(faults() - before)
"""


def run(mode):
    return int(
        subprocess.run([sys.executable, "-c", _PROGRAM, mode], capture_output=True, check=True, text=True).stdout
    )


def test_freed_memory_is_used_again_without_the_kernel():
    assert run("keep") * 10 < run("default")


def test_another_libc_is_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.platform, "libc_ver", lambda: ("", ""))
    assert allocator.keep_memory() is False
