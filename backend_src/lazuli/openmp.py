"""How long torch's CPU threads spin before they sleep. Import this before torch: its OpenMP reads it once.

GNU OpenMP spins for milliseconds at the end of every operation. That is right while each thread has a core to itself;
when anything else wants the core (the server, a tokenizer, a second engine), threads wait for one that is not running.
Two engines on two cores, one text of 128 tokens each: 730 ms with the default, 37 ms so; one engine alone: 15 ms both.
"""

import os

# About 0.1 ms: longer than the gap between two operations, much shorter than a time slice.
_SPIN_COUNT = "2000"

os.environ.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
