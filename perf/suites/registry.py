"""All suites by name.

`cold-start` opens its targets itself, again and again; the others get them open.
"""

from suites import arrivals, bulk, concurrency, latency, memory, mixed, scoring
from suites.contract import Suite

SUITES: dict[str, Suite] = {
    "latency": latency,
    "scoring": scoring,
    "bulk": bulk,
    "concurrency": concurrency,
    "arrivals": arrivals,
    "mixed": mixed,
    "memory": memory,
}
