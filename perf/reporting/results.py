"""What the result files say: all lines, where they come from, and each system compared with the first.

Takes the folder of the results. Knows nothing of how it is shown.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]
# Of `extra`, what tables show unless it is 0.
_EXTRAS = ("min_cosine", "offered_per_s", "failed", "rss_mib", "shm_mib", "device_mib", "longest_wait_s")
# Loads are as each system can take them, or times are not what is measured.
_OF_ITS_OWN = ("arrivals", "memory")


def read_results(folder: Path) -> dict[str, list[Line]]:
    """All lines, by `machine/name`; those older than the key `command` have it from `commands.json`."""
    noted = folder / "commands.json"
    commands: dict[str, str] = json.loads(noted.read_text(encoding="utf-8")) if noted.is_file() else {}
    results = {}
    for file in sorted(folder.glob("*/*.jsonl")):
        name = f"{file.parent.name}/{file.stem}"
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        added = {"command": commands[name]} if name in commands else {}
        results[name] = [added | line for line in lines]
    return results


def provenance(lines: Sequence[Line]) -> str:
    """Checkpoint, machine and commit."""
    return (
        f"{_distinct(lines, 'model')} on {_distinct(lines, 'machine')}; "
        f"torch {_distinct(lines, 'torch')}; commit {_distinct(lines, 'commit')}"
    )


def commands(lines: Sequence[Line]) -> list[str]:
    """What was typed to measure them."""
    found = dict.fromkeys(line["command"] for line in lines if "command" in line)
    return [command for each in found for command in each.splitlines()]


def by_suite(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The lines of each suite."""
    suites: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        suites[line["suite"]].append(line)
    return suites


def compare(lines: Sequence[Line]) -> list[Line]:
    """Add `speedup`, how many times quicker than the first system on the same work, and what of `extra` tables show."""
    first: dict[tuple[Any, ...], Line] = {}
    compared = []
    for line in lines:
        base = first.setdefault(_work(line), line)
        is_other = base["system"] != line["system"] and line["suite"] not in _OF_ITS_OWN
        added = {"speedup": _speedup(line, base)} if is_other else {}
        extra = line.get("extra", {})
        compared.append(line | added | {key: extra[key] for key in _EXTRAS if extra.get(key)})
    return compared


def _work(line: Line) -> tuple[Any, ...]:
    """What two lines must have in common to be compared: measured in turns, systems may be reached in any way."""
    keys = ("suite", "len", "batch", "concurrency", "note", "model")
    return (*map(line.get, keys), None if "turns" in line.get("extra", {}) else line.get("protocol"))


def _speedup(line: Line, base: Line) -> float:
    """By rates where many texts are what counts, else by the median request."""
    if line["suite"] == "throughput" and "emb_per_s" in line:
        return float(line["emb_per_s"] / base["emb_per_s"])
    return float(base["p50_ms"] / line["p50_ms"])


def _distinct(lines: Sequence[Line], key: str) -> str:
    return ", ".join(dict.fromkeys(str(line[key]) for line in lines if key in line))
