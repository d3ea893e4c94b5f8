"""NVIDIA's perf_analyzer against a live server.

    .venv/bin/python perf/run_perf_analyzer.py --machine cpu-2core --concurrency 1 4 16

Sends texts of given token lengths to `embed` over gRPC and HTTP, at several concurrencies, and writes what it measured,
with every request's time, as JSON lines. Starts a server of its own unless `--grpc` and `--http` name one.
"""

import argparse
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import tokenizers

from lazuli.checkpoint import resolve_checkpoint
from lazuli.config import DEFAULT_CHECKPOINT
from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from measurement import Measurement, write
from perf_analyzer_binary import find_perf_analyzer
from texts import make_texts


def run(address: str, protocol: str, texts: list[str], batch: int, concurrency: int, seconds: float) -> list[float]:
    """One perf_analyzer run; returns the time of each request in ms."""
    binary, environment = find_perf_analyzer()
    with tempfile.TemporaryDirectory() as folder:
        data, export = Path(folder) / "input.json", Path(folder) / "export.json"
        data.write_text(json.dumps({"data": [{"text": [text]} for text in texts]}), encoding="utf-8")
        command = [str(binary), "-m", "embed", "-u", address, "-i", protocol, "-b", str(batch)]
        command += ["--input-data", str(data), "--concurrency-range", str(concurrency)]
        # One window: perf_analyzer's search for three stable ones has no end on a shared machine.
        command += ["--measurement-interval", str(int(seconds * 1e3)), "--stability-percentage", "999"]
        command += ["--max-trials", "3", "--profile-export-file", str(export)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0 or not export.is_file():
            raise RuntimeError(f"perf_analyzer failed:\n{done.stdout}\n{done.stderr}")
        # It writes the bytes of the tensors into its JSON as they are; only the times are read here.
        experiments = json.loads(export.read_text(encoding="latin-1"), strict=False)["experiments"]
    requests = [request for experiment in experiments for request in experiment["requests"]]
    return [(request["response_timestamps"][-1] - request["timestamp"]) / 1e6 for request in requests]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all combinations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--grpc", help="host:port of a running server; else one is started")
    parser.add_argument("--http", help="host:port of a running server")
    parser.add_argument("--len", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args(arguments)

    tokenizer = tokenizers.Tokenizer.from_file(str(resolve_checkpoint(DEFAULT_CHECKPOINT) / "tokenizer.json"))
    measurements = []
    with _addresses(options.grpc, options.http) as addresses:
        for protocol, address in addresses.items():
            for length in options.len:
                texts = make_texts(tokenizer, [length] * 64)
                for batch in options.batch:
                    for concurrency in options.concurrency:
                        samples = run(address, protocol, texts, batch, concurrency, options.seconds)
                        line = Measurement(
                            "lazuli (perf_analyzer)",
                            "server",
                            "concurrency",
                            DEFAULT_CHECKPOINT,
                            "auto",
                            samples,
                            len=length,
                            batch=batch,
                            concurrency=concurrency,
                            protocol=protocol,
                            texts=batch,
                            tokens=batch * length,
                            # A closed loop: each of the clients spent the sum of its requests' times.
                            wall_s=sum(samples) / 1e3 / concurrency,
                        )
                        measurements.append(line)
                        print(line.summary(), flush=True)
    print(write(options.machine, "perf_analyzer", measurements))


@contextlib.contextmanager
def _addresses(grpc: str | None, http: str | None) -> Iterator[dict[str, str]]:
    if grpc or http:
        yield {name: address for name, address in (("grpc", grpc), ("http", http)) if address}
        return
    with running_server(ServeOptions(door=Door.UNARY)) as server:
        yield {"grpc": server.grpc, "http": server.http}


if __name__ == "__main__":
    main()
