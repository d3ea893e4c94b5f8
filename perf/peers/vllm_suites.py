"""Suites against vLLM and Lazuli that are both on this machine: their servers, then their engines.

Takes the options of `vllm_h200.py`; writes result files and logs. Knows nothing of how either was installed.
"""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

from peers.json_server import end, end_when_told, wait_for

PERF = Path(__file__).resolve().parents[1]
SUITES = ("latency", "scoring", "bulk", "concurrency")
# Run by Lazuli's Python, which this one need not be.
_FIND_CHECKPOINT = """
import sys
sys.path.insert(0, {perf!r})
from checkpoints.folder import find_checkpoint
from lazuli.checkpoint import load_checkpoint
from peers.vllm_checkpoint import vllm_checkpoint
found = load_checkpoint(find_checkpoint({name!r}))
print(found.path, vllm_checkpoint(found), found.max_seq_length, sep="\\t")
"""


def run(options: argparse.Namespace) -> None:
    """Run the suites, the servers' and then, if asked for, the engines'."""
    end_when_told()
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    ours, theirs = lazuli_python(options), environment_python(options.target)
    found = subprocess.run(
        [str(ours), "-c", _FIND_CHECKPOINT.format(perf=str(PERF), name=options.checkpoint)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    # The last line, as it may tell before that it makes the checkpoint.
    checkpoint, for_vllm, limit = found.splitlines()[-1].split("\t")
    limit = str(options.max_seq_length or limit)
    shared = ["--machine", options.machine, "--checkpoint", checkpoint, "--dtype", "bfloat16"]
    shared += ["--model", options.model or Path(options.checkpoint).name, "--max-seq-length", limit]
    logs = options.logs or options.target / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    command = server_command(theirs, for_vllm, limit, options)
    failed = _servers(command, ours, options, shared, logs, environment)
    if options.engine:
        targets = ["--target", "lazuli-engine", "--target", f"vllm-engine,memory={options.memory}", "--send", "ids"]
        suites = options.engine_suites or options.suites
        failed |= _suites(theirs, suites, f"{options.name}_engine", [*shared, *targets], logs, environment)
    if failed:
        sys.exit(f"not all succeeded; see {logs}")


def server_command(python: Path, checkpoint: str, limit: str, options: argparse.Namespace) -> list[str]:
    """VLLM's server as its documentation has it, without a line in the log for each request."""
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", checkpoint, "--runner", "pooling"]
    command += ["--convert", "embed", "--dtype", "bfloat16", "--max-model-len", limit, "--port", str(options.port)]
    command += ["--host", "127.0.0.1", "--gpu-memory-utilization", str(options.memory)]
    return [*command, "--disable-uvicorn-access-log", *shlex.split(options.vllm)]


def environment_python(target: Path) -> Path:
    """Of vLLM's environment."""
    return target / "venv" / "bin" / "python"


def lazuli_python(options: argparse.Namespace) -> Path:
    """Of Lazuli's environment."""
    return Path(options.lazuli) / "bin" / "python"


def _servers(
    command: list[str],
    python: Path,
    options: argparse.Namespace,
    shared: list[str],
    logs: Path,
    environment: dict[str, str],
) -> bool:
    """Start vLLM's server and run the suites; says whether one failed."""
    url = f"http://127.0.0.1:{options.port}"
    print(shlex.join(command), flush=True)
    # What is put before all packages for Lazuli's sake is not for vLLM.
    alone = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    with open(logs / f"{options.name}_server.log", "wb") as log:
        server = subprocess.Popen(command, env=alone, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(server, url, lambda connection: connection.get("/health"), options.start_timeout)
        targets = ["--target", "lazuli-grpc", "--target", f"vllm={url},dtype=bfloat16"]
        return _suites(python, options.suites, options.name, [*shared, *targets], logs, environment)
    except RuntimeError as error:
        # The engines may be measured all the same.
        print(error, file=sys.stderr, flush=True)
        return True
    finally:
        end(server)


def _suites(
    python: Path, suites: list[str], name: str, common: list[str], logs: Path, environment: dict[str, str]
) -> bool:
    """Run them in one process, whose output is kept as well; says whether one failed."""
    words = [word for suite in suites for word in ("--suite", suite)]
    command = [str(python), str(PERF / "run_several.py"), *words, "--prefix", name, "--", *common]
    print(shlex.join(command), flush=True)
    # Not through a pipe: whatever outlives the process would keep it open, and this waiting.
    file = logs / f"{name}.log"
    with file.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        return process.wait() != 0
    finally:
        end(process)
        print(file.read_text(errors="replace"), flush=True)
