"""How long a server takes until every model answers, and how quick its first request is.

    .venv/bin/python perf/bench_start.py --machine cpu-2core

Suites: `start` (time until ready, several starts in a row), `first` (the first request of a client after ready) and
`later` (those after it): ready should mean warm.
"""

import argparse
import time
from collections.abc import Sequence

import lazuli
from lazuli.config import DEFAULT_CHECKPOINT
from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from lazuli_client import LazuliClient
from measurement import Measurement, positive, write

_TEXT = "what a person types into a search box"
_LATER = 50


def main(arguments: Sequence[str] | None = None) -> None:
    """Start servers of each door."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--starts", type=positive, default=3)
    options = parser.parse_args(arguments)
    system = f"lazuli {lazuli.__version__}"
    measurements = []
    for door in (Door.BOTH, Door.UNARY):
        starts, firsts, laters = [], [], []
        for _ in range(options.starts):
            began = time.perf_counter()
            with running_server(ServeOptions(door=door)) as server:
                starts.append((time.perf_counter() - began) * 1e3)
                with LazuliClient(server.grpc) as client:
                    client.health()  # opens the connection, which is no matter of the server's
                    samples = [_request_ms(client) for _ in range(1 + _LATER)]
            firsts.append(samples[0])
            laters += samples[1:]
        for suite, samples in (("start", starts), ("first", firsts), ("later", laters)):
            note = f"doors: {door.value}"
            texts = None if suite == "start" else 1
            line = Measurement(system, "server", suite, DEFAULT_CHECKPOINT, "auto", samples, texts=texts, note=note)
            measurements.append(line)
            print(note, line.summary(), flush=True)
    print(write(options.machine, "start", measurements))


def _request_ms(client: LazuliClient) -> float:
    began = time.perf_counter()
    client.embed([_TEXT])
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    main()
