"""vLLM 0.22.0 beside Lazuli on a GPU machine without a network.

    python perf/peers/vllm_h200.py pack build/vllm                          here: fetch its wheels, one archive in parts
    python3 perf/peers/vllm_h200.py prepare PARTS /tmp/vllm --lazuli /tmp/lazuli/venv      there: install, try
    python3 perf/peers/vllm_h200.py run /tmp/vllm --lazuli /tmp/lazuli/venv --checkpoint bge-m3 --engine

vLLM gets an environment of its own over the machine's Python, which must have torch 2.11: its packages first, then
the machine's, then those of Lazuli's environment (what `perf/bundle_install.sh` made), so that `run.py` works there
too. Packed is what embeds texts on Hopper (`vllm_parts.py` says what is not, and why). `run` starts each server once
for all suites, and asks them in turns; with `--engine` the engines are then compared in process. Both share one GPU:
`--memory` is vLLM's part of it. All that is printed, and the log of vLLM's server, is kept in TARGET/logs.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PERF = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PERF))

from peers.vllm_parts import ADVISED, VERSION, is_needed, is_needed_file, slim  # noqa: E402
from peers.vllm_suites import SUITES, environment_python, lazuli_python, run  # noqa: E402
from peers.wheels import install, join, pack_folder, split, unpack  # noqa: E402

_PART_BYTES = 60 * 2**20
# On a GPU: one kernel of each library, so that code that is missing is not found out in the middle of a run.
_TRY = """
import torch, transformers, vllm
# Where it cannot be imported, vLLM takes another attention without a word.
import vllm.v1.attention.backends.flash_attn
print("vLLM", vllm.__version__, "torch", torch.__version__, "transformers", transformers.__version__)
if torch.cuda.is_available():
    from vllm import _custom_ops
    from vllm.vllm_flash_attn import flash_attn_varlen_func
    q = torch.randn(64, 4, 64, device="cuda", dtype=torch.bfloat16)
    ends = torch.tensor([0, 64], device="cuda", dtype=torch.int32)
    ours = flash_attn_varlen_func(q, q, q, 64, ends, 64, cu_seqlens_k=ends, causal=False, fa_version=3)
    heads = q.transpose(0, 1)
    theirs = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(0, 1)
    torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=2e-2)
    x, weight = torch.randn(8, 256, device="cuda", dtype=torch.bfloat16), torch.ones(256, device="cuda").bfloat16()
    normed = torch.empty_like(x)
    _custom_ops.rms_norm(normed, x, weight, 1e-6)
    torch.testing.assert_close(normed, torch.nn.functional.rms_norm(x, (256,), weight, 1e-6), atol=2e-2, rtol=2e-2)
    keys, values = (torch.zeros(2, 16, 4, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    slots, one = torch.arange(16, device="cuda"), torch.ones((), device="cuda")
    _custom_ops.reshape_and_cache_flash(q[:16], q[:16], keys, values, slots, "auto", one, one)
    torch.testing.assert_close(keys[0], q[:16])
    print("its kernels run on", torch.cuda.get_device_name())
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """One of the three steps."""
    options = _parse(arguments)
    options.step(options)


def pack(options: argparse.Namespace) -> None:
    """Fetch the wheels that the machine lacks, and write what it needs of them in parts."""
    fetched, site = options.out / "wheels", options.out / "site"
    for wheel in _fetch(fetched, options):
        install(wheel, site, options.out / "data", is_needed_file)
    if not options.whole:
        slim(site)
    archive = options.out / "vllm.tar.xz"
    pack_folder(site, archive)
    for folder in split(archive, options.out, _PART_BYTES):
        print(folder)
    print(f"{archive.stat().st_size / 2**20:.1f} MiB")


def prepare(options: argparse.Namespace) -> None:
    """Make the environment and see whether vLLM can be imported, and its kernels run."""
    python = environment_python(options.target)
    if not python.is_file():
        subprocess.run([options.python, "-m", "venv", "--without-pip", str(options.target / "venv")], check=True)
    site = Path(_output(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    unpack(join(options.parts, options.target), site)
    # A venv made from a venv sees the base's packages at most, so all are named; addsitedir puts them behind ours.
    machine = _output(Path(options.python), "import sys; print([p for p in sys.path if p.endswith('-packages')])")
    lazuli = _output(lazuli_python(options), "import sysconfig; print(sysconfig.get_path('purelib'))")
    (site / "peers.pth").write_text(f"import site; list(map(site.addsitedir, [*{machine}, {lazuli!r}]))\n")
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(python), "-W", "ignore", "-c", _TRY], check=True, env=alone)


def _fetch(folder: Path, options: argparse.Namespace) -> list[Path]:
    """The wheels that are needed; those that are there already are not fetched again."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(5, options.glibc + 1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    common = ["--only-binary=:all:", "--implementation", "cp", "--python-version", options.python]
    common += [word for each in platforms for word in ("--platform", each)]
    # Resolved first and without fetching: torch and what it brings are gigabytes that stay where they are.
    resolve = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--target", str(folder)]
    report = json.loads(_pip([*resolve, *common, f"vllm=={VERSION}", *ADVISED]))
    found = [(each["metadata"]["name"], each["metadata"]["version"]) for each in report["install"]]
    needed = [f"{name}=={version}" for name, version in found if is_needed(name) or name in options.also]
    print(f"{len(needed)} of {len(found)} packages:", *needed, flush=True)
    _pip(["download", "--no-deps", "--dest", str(folder), *common, *needed])
    # The folder may hold wheels of another time.
    names = {each.partition("==")[0].lower().replace("-", "_").replace(".", "_") for each in needed}
    return [wheel for wheel in sorted(folder.glob("*.whl")) if wheel.name.split("-")[0].lower() in names]


def _pip(arguments: list[str]) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _output(python: Path, code: str) -> str:
    return subprocess.run([str(python), "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True, metavar="STEP")
    step = steps.add_parser("pack", help=(pack.__doc__ or "").lower())
    step.set_defaults(step=pack)
    step.add_argument("out", type=Path)
    step.add_argument("--python", default="3.12", help="of the other machine")
    step.add_argument("--glibc", type=int, default=39, help="its glibc is 2.N")
    step.add_argument("--also", nargs="*", default=[], help="packages that it has, but too new, such as transformers")
    step.add_argument("--whole", action="store_true", help="leave the machine code of other GPUs in the libraries")
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
    step.add_argument("--name", default="vllm", help="how the result files' names begin")
    step.add_argument("--max-seq-length", type=int)
    step.add_argument("--suites", nargs="+", default=list(SUITES), help="each with options of its own, in one word")
    step.add_argument("--engine", action="store_true", help="compare the engines as well")
    step.add_argument("--engine-suites", nargs="+", help="if these are to be others")
    step.add_argument("--memory", type=float, default=0.4, help="share of the GPU's that vLLM takes")
    step.add_argument("--logs", type=Path, help="where logs go, in place of TARGET/logs")
    step.add_argument("--port", type=int, default=8090)
    step.add_argument("--start-timeout", type=float, default=400.0)
    step.add_argument("--vllm", default="", help="more options for its server, in one word")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
