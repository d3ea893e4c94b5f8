"""vLLM 0.22.0 beside Lazuli on a GPU machine without a network.

    python perf/peers/vllm_h200.py pack build/vllm                          here: fetch its wheels, in parts of 60 MiB
    python3 perf/peers/vllm_h200.py prepare PARTS /tmp/vllm --lazuli /tmp/lazuli/venv      there: install them
    python3 perf/peers/vllm_h200.py run /tmp/vllm --lazuli /tmp/lazuli/venv --checkpoint bge-m3 --engine

vLLM gets an environment of its own over the machine's Python, which must have torch 2.11: its packages first, then
the machine's, then those of Lazuli's environment (what `perf/bundle_install.sh` made), so that `run.py` works there
too. `run` starts vLLM's server once; each suite asks it and Lazuli's server in turns. With `--engine` the engines are
then compared in process. Both servers share one GPU: `--memory` is vLLM's part of it.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PERF = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PERF))

from peers.wheels import install, join, split  # noqa: E402

VERSION = "0.22.0"
SUITES = ("latency", "scoring", "bulk", "concurrency")
# What the machine has (perf/bundle_packages.txt says the same): torch with all that CUDA needs, and what came with it.
_THERE = (
    "torch triton nvidia-[a-z0-9-]* cuda-[a-z0-9-]* numpy transformers tokenizers safetensors huggingface-hub typer "
    "rich pyarrow aiohttp packaging setuptools sympy networkx jinja2 fsspec mpmath"
)
# What text models never import.
_NEEDLESS = "torchaudio torchvision opencv-python-headless flashinfer-cubin"
# Of NVIDIA's packages, those that no torch brings.
_NOT_THERE = "nvidia-cutlass-dsl[a-z0-9-]* nvidia-cudnn-frontend nvidia-ml-py cuda-python cuda-core cuda-tile"
# Run by Lazuli's Python, which this one need not be.
_FIND_CHECKPOINT = """
import sys
sys.path.insert(0, {perf!r})
from checkpoint_folder import find_checkpoint
from lazuli.checkpoint import load_checkpoint
from peers.vllm_checkpoint import vllm_checkpoint
found = load_checkpoint(find_checkpoint({name!r}))
print(found.path, vllm_checkpoint(found), found.max_seq_length, sep="\\t")
"""
_PART_BYTES = 60 * 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    """One of the three steps."""
    options = _parse(arguments)
    options.step(options)


def pack(options: argparse.Namespace) -> None:
    """Fetch the wheels that the machine lacks, and write them in parts."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(5, options.glibc + 1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    common = ["--only-binary=:all:", "--implementation", "cp", "--python-version", options.python]
    common += [word for each in platforms for word in ("--platform", each)]
    fetched = options.out / "wheels"
    # Resolved first and without fetching: torch and what it brings are gigabytes that stay where they are.
    resolve = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--target", str(fetched)]
    report = json.loads(_pip([*resolve, *common, f"vllm=={VERSION}"]))
    found = [(each["metadata"]["name"], each["metadata"]["version"]) for each in report["install"]]
    needed = [f"{name}=={version}" for name, version in found if is_needed(name) or name in options.also]
    print(f"{len(needed)} of {len(found)} packages:", *needed, flush=True)
    _pip(["download", "--no-deps", "--dest", str(fetched), *common, *needed])
    wheels = sorted(fetched.glob("*.whl"))
    for folder in split(wheels, options.out, _PART_BYTES):
        print(folder)
    print(f"{sum(wheel.stat().st_size for wheel in wheels) / 2**20:.0f} MiB")


def is_needed(package: str) -> bool:
    """Whether a package is to be packed, by its name."""
    name = re.sub(r"[-_.]+", "-", package).lower()
    return _matches(name, _NOT_THERE) or not _matches(name, f"{_THERE} {_NEEDLESS}")


def prepare(options: argparse.Namespace) -> None:
    """Make the environment and see whether vLLM can be imported."""
    python = environment_python(options.target)
    if not python.is_file():
        subprocess.run([options.python, "-m", "venv", "--without-pip", str(options.target / "venv")], check=True)
    site = Path(_output(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    for wheel in join(options.parts, options.target / "wheels"):
        install(wheel, site, options.target / "venv")
    # A venv made from a venv sees the base's packages at most, so all are named; addsitedir puts them behind ours.
    machine = _output(Path(options.python), "import sys; print([p for p in sys.path if p.endswith('-packages')])")
    lazuli = _output(_lazuli_python(options), "import sysconfig; print(sysconfig.get_path('purelib'))")
    (site / "peers.pth").write_text(f"import site; list(map(site.addsitedir, [*{machine}, {lazuli!r}]))\n")
    versions = "vllm.__version__, torch.__version__, torch.cuda.is_available(), transformers.__version__"
    print("vLLM, torch, CUDA, transformers:", end=" ", flush=True)
    print(_output(python, f"import torch, transformers, vllm; print({versions})").splitlines()[-1])


def run(options: argparse.Namespace) -> None:
    """Run the suites, the servers' and then, if asked for, the engines'."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    ours, theirs = _lazuli_python(options), environment_python(options.target)
    # The last line, as it may tell before that it makes the checkpoint.
    found = _output(ours, _FIND_CHECKPOINT.format(perf=str(PERF), name=options.checkpoint)).splitlines()[-1]
    checkpoint, for_vllm, limit = found.split("\t")
    shared = ["--machine", options.machine, "--checkpoint", checkpoint, "--dtype", "bfloat16"]
    shared += ["--model", options.model or Path(options.checkpoint).name]
    if options.max_seq_length:
        limit = str(options.max_seq_length)
        shared += ["--max-seq-length", limit]
    failed = []
    with open(options.target / "server.log", "wb") as log:
        url = f"http://127.0.0.1:{options.port}"
        command = server_command(theirs, for_vllm, limit, options)
        print(shlex.join(command), flush=True)
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait_for(server, f"{url}/health", options.start_timeout)
            targets = ["--target", "lazuli-grpc", "--target", f"vllm={url},dtype=bfloat16"]
            for suite in options.suites:
                failed += _suite(ours, suite, f"vllm_{suite}", [*shared, *targets], environment)
        finally:
            end_group(server)
    if options.engine:
        targets = ["--target", "lazuli-engine", "--target", f"vllm-engine,memory={options.memory}"]
        for suite in options.suites:
            ids = ["--send", "ids"]
            failed += _suite(theirs, suite, f"vllm_engine_{suite}", [*shared, *targets, *ids], environment)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see {options.target / 'server.log'}")


def server_command(python: Path, checkpoint: str, limit: str, options: argparse.Namespace) -> list[str]:
    """VLLM's server as its documentation has it, without a line in the log for each request."""
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", checkpoint, "--runner", "pooling"]
    command += ["--convert", "embed", "--dtype", "bfloat16", "--max-model-len", limit, "--port", str(options.port)]
    command += ["--host", "127.0.0.1", "--gpu-memory-utilization", str(options.memory)]
    return [*command, "--disable-uvicorn-access-log", *shlex.split(options.vllm)]


def environment_python(target: Path) -> Path:
    """Of vLLM's environment."""
    return target / "venv" / "bin" / "python"


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a server with all of its children."""
    from peers.json_server import end

    end(process)


def _lazuli_python(options: argparse.Namespace) -> Path:
    return Path(options.lazuli) / "bin" / "python"


def _suite(python: Path, suite: str, name: str, arguments: list[str], environment: dict[str, str]) -> list[str]:
    """Run one; returns its name if it failed."""
    command = [str(python), str(PERF / "run.py"), suite, "--name", name, *arguments]
    print(shlex.join(command), flush=True)
    return [name] if subprocess.run(command, env=environment).returncode else []


def _wait_for(server: subprocess.Popen[bytes], url: str, timeout_s: float) -> None:
    from peers.json_server import wait_for

    wait_for(server, url.removesuffix("/health"), lambda connection: connection.get("/health"), timeout_s)


def _pip(arguments: list[str]) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _output(python: Path, code: str) -> str:
    return subprocess.run([str(python), "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _matches(name: str, patterns: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns.split())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True, metavar="STEP")
    step = steps.add_parser("pack", help=(pack.__doc__ or "").lower())
    step.set_defaults(step=pack)
    step.add_argument("out", type=Path)
    step.add_argument("--python", default="3.12", help="of the other machine")
    step.add_argument("--glibc", type=int, default=39, help="its glibc is 2.N")
    step.add_argument("--also", nargs="*", default=[], help="packages that it has, but too new, such as transformers")
    step = steps.add_parser("prepare", help=(prepare.__doc__ or "").lower())
    step.set_defaults(step=prepare)
    step.add_argument("parts", type=Path, help="folder that has all parts, in folders or not")
    step.add_argument("target", type=Path)
    step.add_argument("--python", default="python3", help="the machine's own, with torch")
    step.add_argument("--lazuli", required=True, help="Lazuli's environment")
    step = steps.add_parser("run", help=(run.__doc__ or "").lower())
    step.set_defaults(step=run)
    step.add_argument("target", type=Path)
    step.add_argument("--lazuli", required=True, help="Lazuli's environment")
    step.add_argument("--machine", default="h200")
    step.add_argument("--checkpoint", required=True, help="folder, packaged checkpoint or shape")
    step.add_argument("--model", help="what to call it")
    step.add_argument("--max-seq-length", type=int)
    step.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    step.add_argument("--engine", action="store_true", help="compare the engines as well")
    step.add_argument("--memory", type=float, default=0.4, help="share of the GPU's that vLLM takes")
    step.add_argument("--port", type=int, default=8090)
    step.add_argument("--start-timeout", type=float, default=400.0)
    step.add_argument("--vllm", default="", help="more options for its server, in one word")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
