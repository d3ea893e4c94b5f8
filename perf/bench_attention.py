"""The attention kernels alone: time of a call inside a CUDA graph, and of the plan on the host.

    python perf/bench_attention.py --machine h200

Every backend runs in a process of its own, so that one that fails, hangs or breaks the device costs only its own
figures. Batches are padded as the engine does. Each case is checked against float32 first. Writes
`perf/results/<machine>/attention.jsonl`, and the table that the `auto` backend chooses by.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from instruments.attention import Case, make_cases, measure, raise_clocks
from lazuli.attention.base import AttentionBackend
from lazuli.attention.select import BACKENDS, select_attention
from lazuli.attention.table import TABLE
from lazuli.errors import ConfigError
from reporting.measurement import RESULTS, Measurement, write

_BACKEND_TIMEOUT_S = 240


def measure_backend(name: str) -> Iterator[dict[str, Any]]:
    """Lines about each case of one backend: figures, or why there are none."""
    device = torch.device("cuda", 0)
    made: dict[str, AttentionBackend | ConfigError] = {}
    for case in make_cases():
        line: dict[str, Any] = {"backend": name, "shape": case.shape_name, "lengths": case.lengths}
        if case.shape_name not in made:
            made[case.shape_name] = _make(name, device, case)
        backend = made[case.shape_name]
        if isinstance(backend, ConfigError):
            yield line | {"unusable": str(backend)}
            continue
        try:
            yield line | measure(backend, case)
        except Exception as error:
            yield line | {"failed": f"{type(error).__name__}: {error}"}


def _make(name: str, device: torch.device, case: Case) -> AttentionBackend | ConfigError:
    try:
        return select_attention(name, device, torch.bfloat16, case.shape)
    except ConfigError as error:
        return error


@torch.inference_mode()
def run_backend(name: str) -> None:
    """In a process of its own: write lines to the standard output."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        raise_clocks()
        for line in measure_backend(name):
            print(json.dumps(line), flush=True)


def collect(name: str) -> list[dict[str, Any]]:
    """Run one backend in a process and read its lines, as many as there are."""
    command = [sys.executable, __file__, "--backend", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            output, _ = process.communicate(timeout=_BACKEND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            print(f"{name}: stopped after {_BACKEND_TIMEOUT_S} s")
    return [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]


def to_measurement(line: dict[str, Any]) -> Measurement:
    """A line of the result file."""
    case = Case(line["shape"], tuple(line["lengths"]))
    plan_us = _median_us(line["plan_ms"])
    return Measurement(
        system=line["backend"],
        level="kernel",
        suite="attention",
        model=case.shape_name,
        dtype="bfloat16",
        samples_ms=line["call_ms"],
        attention=line["backend"],
        len=case.label,
        batch=len(case.lengths),
        texts=None,
        tokens=case.num_tokens,
        extra={"plan_us": plan_us, "largest_error": line["error"]},
    )


def to_entries(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries of the table: one for each case, with the median times of all backends."""
    by_case: dict[tuple[str, tuple[int, ...]], list[dict[str, Any]]] = {}
    for line in lines:
        by_case.setdefault((line["shape"], tuple(line["lengths"])), []).append(line)
    return [_entry(Case(*key), members) for key, members in by_case.items()]


def update_table(file: Path, entries: Sequence[dict[str, Any]]) -> None:
    """Put the entries of this GPU in the place of its old ones; one line each."""
    kept = [entry for entry in json.loads(file.read_text(encoding="utf-8")) if entry["gpu"] != entries[0]["gpu"]]
    text = ",\n".join(json.dumps(entry) for entry in [*kept, *entries])
    file.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def _entry(case: Case, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    shape, bucket = case.shape, case.bucket
    return {
        "gpu": torch.cuda.get_device_name(0),
        "capability": list(torch.cuda.get_device_capability(0)),
        "num_heads": shape.num_heads,
        "num_kv_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "causal": shape.causal,
        "num_tokens": bucket.num_tokens,
        "num_sequences": bucket.num_sequences,
        "max_seqlen": bucket.max_seqlen,
        "call_us": {line["backend"]: _median_us(line["call_ms"]) for line in lines},
        "plan_us": {line["backend"]: _median_us(line["plan_ms"]) for line in lines if line["plan_ms"]},
    }


def _median_us(samples_ms: Sequence[float]) -> float:
    return round(1e3 * statistics.median(samples_ms), 2) if samples_ms else 0.0


def _report_failures(name: str, lines: Sequence[dict[str, Any]]) -> None:
    for kind in ("unusable", "failed"):
        reasons: dict[str, int] = {}
        for line in lines:
            if kind in line:
                reasons[line[kind]] = reasons.get(line[kind], 0) + 1
        for reason, times in reasons.items():
            print(f"{name}: {kind} in {times} cases: {reason[:300]}")


def _print_medians(lines: Sequence[dict[str, Any]]) -> None:
    entries = to_entries(lines)
    for entry in entries:
        layout = f"{entry['num_tokens']:6d} tokens {entry['num_sequences']:4d} texts"
        mask = " causal" if entry["causal"] else ""
        heads = f"{entry['num_heads']}/{entry['num_kv_heads']}×{entry['head_dim']}{mask}"
        times = " ".join(f"{name} {us:.1f}" for name, us in entry["call_us"].items())
        plans = " ".join(f"{name} {us:.0f}" for name, us in entry["plan_us"].items() if us >= 1)
        print(f"{heads:16s} {layout}: {times}" + (f" | plan {plans}" if plans else ""))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="local", help="folder below perf/results")
    parser.add_argument("--results", type=Path, default=RESULTS, help="in place of perf/results")
    parser.add_argument("--table", type=Path, default=TABLE, help="file of the table that auto chooses by")
    parser.add_argument("--only", nargs="*", help="names of backends; the table is then not written")
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure all backends, one after the other."""
    arguments = _parse()
    if arguments.backend is not None:
        run_backend(arguments.backend)
        return
    names = arguments.only or [backend.name for backend in BACKENDS if backend.capturable]
    measured = []
    for name in names:
        start = time.perf_counter()
        lines = collect(name)
        _report_failures(name, lines)
        good = [line for line in lines if line.get("call_ms")]
        print(f"{name}: {len(good)} of {len(make_cases())} cases in {time.perf_counter() - start:.0f} s", flush=True)
        measured += good
    _print_medians(measured)
    if measured:
        print(write(arguments.machine, "attention", [to_measurement(line) for line in measured], arguments.results))
        if not arguments.only:
            update_table(arguments.table, to_entries(measured))
            print(arguments.table)


if __name__ == "__main__":
    main()
