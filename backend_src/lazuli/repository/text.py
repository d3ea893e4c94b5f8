"""What the commands on models print.

Takes records; returns text. Does not know where it is printed.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from lazuli.launch.addresses import Addresses
from lazuli.launch.examples import curl_example, python_example
from lazuli.launch.folders import user_models
from lazuli.launch.options import Door, ServeOptions
from lazuli.repository.addition import Added
from lazuli.repository.catalog import Entry
from lazuli.repository.facts import Facts
from lazuli.repository.names import Task, doors_of

_HEAD = ("name", "task", "architecture", "output", "dimension", "limit", "pooling", "dtype", "checkpoint", "state")
_MOST_LABELS = 10

_COMMANDS = {
    Task.EMBED: "embed FILE -o vectors.parquet",
    Task.RERANK: "rerank QUERY FILE",
    Task.CLASSIFY: "classify FILE",
}


def describe(added: Added, repository: Path) -> str:
    """What was added, what it costs, and how to call it."""
    facts = added.facts
    doors = added.model.doors_among(added.folders)
    rows = [
        ("checkpoint", added.checkpoint),
        ("architecture", facts.architecture),
        ("task", facts.task.value),
        ("weights", _weights(facts, len(doors))),
        *_of_the_task(facts),
    ]
    lines = [f"added {added.model.name} to {repository}: {', '.join(sorted(added.folders))}"]
    lines += [f"  {name:<12}  {value}" for name, value in rows]
    return "\n".join([*lines, "", how_to_call(added, repository, doors)])


def how_to_call(added: Added, repository: Path, doors: Sequence[Door]) -> str:
    """Commands that serve and call a model on the usual ports."""
    addresses = Addresses.of(ServeOptions())
    command = _command()
    found = repository == user_models() and not os.environ.get("LAZULI_MODEL_REPOSITORY")
    place = [] if found else ["--model-repository", shlex.quote(str(repository))]
    serve = " ".join([command, "serve", *place, "--model", added.model.name])
    parts = ["Serve it, or without --model all models of the repository:", serve, "Then call it:"]
    parts += [curl_example(addresses, added.model, doors), python_example(addresses, added.model, doors)]
    words = _COMMANDS.get(added.model.task)
    if words is not None and Door.UNARY in doors:
        parts.append(f"{command} {words} --model {added.model.name}")
    return "\n\n".join(parts)


def table(entries: Sequence[Entry]) -> str:
    """One line a model; nothing is cut off."""
    rows = [_HEAD, *map(_row, entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def size(num_bytes: int) -> str:
    """A number of bytes for people, in powers of ten."""
    units = ("bytes", "kB", "MB", "GB")
    value, unit = float(num_bytes), 0
    while value >= 1000 and unit < len(units) - 1:
        value, unit = value / 1000, unit + 1
    return f"{num_bytes} bytes" if unit == 0 else f"{value:.1f} {units[unit]}"


def _row(entry: Entry) -> tuple[str, ...]:
    one_door = f" ({entry.doors[0]} only)" if len(entry.doors) < len(doors_of(entry.task)) else ""
    state = f"incomplete: {entry.fault}" if entry.fault else f"complete{one_door}"
    return (
        *(entry.name, entry.task.value, entry.architecture, entry.output, entry.dimension, entry.limit),
        *(entry.pooling, entry.dtype, entry.checkpoint, state),
    )


def _weights(facts: Facts, num_doors: int) -> str:
    weights = facts.weights
    files = f" in {len(weights.files)} files" if len(weights.files) > 1 else ""
    twice = "; each of the two doors loads its own copy" if num_doors == 2 else ""
    return f"{size(weights.num_bytes)}{files}, {weights.num_parameters:,} numbers, {weights.dtype}{twice}"


def _of_the_task(facts: Facts) -> list[tuple[str, str]]:
    if facts.task is Task.RERANK:
        if not facts.activation:
            return [("limit", f"{facts.max_seq_length} tokens a text"), ("scores", "by what it makes of both texts")]
        default = "" if facts.activation == "identity" else f"; {facts.activation} unless a request says otherwise"
        return [("limit", f"{facts.max_seq_length} tokens a pair"), ("scores", f"logits{default}")]
    limit = ("limit", f"{facts.max_seq_length} tokens a {'document' if facts.task is Task.CONTEXT else 'text'}")
    if facts.task is Task.CLASSIFY:
        return [limit, ("labels", f"{_labels(facts)} ({facts.activation})")]
    prompts = ("prompts", _prompts(facts))
    outputs = [("outputs", ", ".join(facts.outputs))] if facts.outputs != ("dense",) else []
    if "dense" not in facts.outputs:
        return [*outputs, limit, prompts]
    return [("dimension", str(facts.dimension)), *outputs, limit, ("pooling", _pooling(facts)), prompts]


def _labels(facts: Facts) -> str:
    more = len(facts.labels) - _MOST_LABELS
    return ", ".join([*facts.labels[:_MOST_LABELS], *([f"and {more} more"] if more > 0 else [])])


def _pooling(facts: Facts) -> str:
    guess = (
        " (the checkpoint has no modules.json to say so: --pooling sets another)" if facts.pooling_is_guessed else ""
    )
    return facts.pooling + guess + ("; vectors are scaled to unit length" if facts.normalize else "")


def _prompts(facts: Facts) -> str:
    names = ", ".join(facts.prompts) or "none"
    return names + (f" (by default {facts.default_prompt_name})" if facts.default_prompt_name else "")


def _command() -> str:
    """How this command is called."""
    script = Path(sys.executable).parent / "lazuli"
    return shlex.quote(str(script)) if script.is_file() else "lazuli"
