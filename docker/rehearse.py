"""Runs the steps of the Dockerfile in a folder, where there is no engine to build images. Needs root and `unshare`.

    python docker/rehearse.py build ROOT [NAME=VALUE ...]     # RUN, COPY, ... in ROOT, which stands for the base image
    python docker/rehearse.py run ROOT [WORD ...]             # its CMD, or these words, as a container would

ROOT is a root file system with what the base image has, such as one of `debootstrap` with Python, pip, curl and a
server in /opt/tritonserver. NAME=VALUE are build arguments; those that the Dockerfile does not know are variables of
the base image. A container is imitated by `chroot` with processes, mounts and network of its own; the root file system
cannot be written to, as in Kubernetes with `readOnlyRootFilesystem`.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONTEXT = Path(__file__).resolve().parents[1]
_DEFAULT_PATH = "/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SETTINGS = "rehearsal.json"
_SHARED_MEMORY = "1g"


@dataclass(frozen=True)
class Step:
    """One instruction, such as RUN, and what stands behind it."""

    kind: str
    text: str

    def words(self) -> list[str]:
        """The JSON list behind it, or its words."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


@dataclass
class Image:
    """What steps leave behind, beside files.

    Attributes:
        environment: Variables of RUN and of the container.
        folder: Where relative paths begin.
        shell: What RUN is given to.
        settings: The text behind CMD, USER, HEALTHCHECK, VOLUME and EXPOSE.
    """

    environment: dict[str, str]
    folder: str = "/"
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])
    settings: dict[str, str] = field(default_factory=dict)


def read_steps(text: str) -> list[Step]:
    """The instructions of a Dockerfile, lines that go on joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    parts = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return [Step(kind.upper(), rest.strip()) for kind, rest in parts]


def steps_of_last_stage(steps: list[Step], arguments: Mapping[str, str]) -> list[Step]:
    """The steps that the last stage and those below it are made of, from the bottom up."""
    stages: dict[str, list[Step]] = {}
    defaults: dict[str, str] = {}
    chain: list[Step] = []
    for step in steps:
        if step.kind == "FROM":
            base, *name = re.split(r"\s+AS\s+", expand(step.text, {**defaults, **arguments}), flags=re.IGNORECASE)
            chain = list(stages.get(base, []))
            stages[name[0] if name else ""] = chain
        elif not stages:
            key, _, value = step.text.partition("=")
            defaults[key] = value
        else:
            chain.append(step)
    return chain


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Put values in the place of ${NAME}."""
    return re.sub(r"\$\{(\w+)\}", lambda match: variables.get(match[1], ""), text)


def copied_files(sources: list[str], ignored: list[str], context: Path = CONTEXT) -> Iterator[Path]:
    """The files that COPY takes from the checkout, relative to it, without those that .dockerignore leaves out.

    Raises:
        FileNotFoundError: If one of the sources has none.
    """
    for source in sources:
        top = context / source
        found = [path.relative_to(context) for path in ([top] if top.is_file() else sorted(top.rglob("*")))]
        kept = [path for path in found if (context / path).is_file() and is_sent(path, ignored)]
        if not kept:
            raise FileNotFoundError(f"COPY {source}: the context has no such file")
        yield from kept


def is_sent(path: Path, patterns: list[str]) -> bool:
    """Whether .dockerignore lets a file into the context: the last pattern that fits decides."""
    sent = True
    for pattern in patterns:
        wanted = pattern.startswith("!")
        if _fits(path, pattern.removeprefix("!")):
            sent = wanted
    return sent


def _fits(path: Path, pattern: str) -> bool:
    candidates = [path, *path.parents][:-1]
    if pattern.startswith("**/"):
        return any(candidate.match(pattern.removeprefix("**/")) for candidate in candidates)
    return any(
        len(candidate.parts) == len(Path(pattern).parts) and candidate.match(pattern) for candidate in candidates
    )


def ignore_patterns(context: Path = CONTEXT) -> list[str]:
    """The lines of .dockerignore."""
    lines = (context / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


class Builder:
    """Carries steps out in a root file system."""

    def __init__(self, root: Path, arguments: Mapping[str, str]) -> None:
        self.root = root
        self.image = Image({"PATH": _DEFAULT_PATH, **arguments})
        self._ignored = ignore_patterns()

    def do(self, step: Step) -> None:
        """Carry out one step; prints it.

        Raises:
            subprocess.CalledProcessError: If a RUN fails.
        """
        print(f"--> {step.kind} {step.text}", flush=True)
        getattr(self, f"_{step.kind.lower()}", self._keep)(step)

    def _keep(self, step: Step) -> None:
        self.image.settings[step.kind] = step.text

    def _arg(self, step: Step) -> None:
        key, _, value = step.text.partition("=")
        self.image.environment.setdefault(key, value)

    def _env(self, step: Step) -> None:
        for word in shlex.split(step.text):
            key, _, value = word.partition("=")
            self.image.environment[key] = expand(value, self.image.environment)

    def _shell(self, step: Step) -> None:
        self.image.shell = step.words()

    def _workdir(self, step: Step) -> None:
        self.image.folder = step.text
        self._inside(step.text).mkdir(parents=True, exist_ok=True)

    def _copy(self, step: Step) -> None:
        *sources, target = step.words()
        for path in copied_files(sources, self._ignored):
            top = next(source for source in sources if path.is_relative_to(source))
            below = path.name if path == Path(top) else path.relative_to(top)
            place = self._inside(target) / below
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CONTEXT / path, place)

    def _run(self, step: Step) -> None:
        command = [*self.image.shell, f"cd {shlex.quote(self.image.folder)} && {step.text}"]
        subprocess.run(["chroot", str(self.root), *command], env=self.image.environment, check=True)

    def _inside(self, path: str) -> Path:
        return self.root / os.path.normpath(os.path.join(self.image.folder, path)).lstrip("/")


def build(root: Path, arguments: Mapping[str, str]) -> None:
    """Carry out the Dockerfile, and note what `run` needs."""
    steps = read_steps((CONTEXT / "docker" / "Dockerfile").read_text(encoding="utf-8"))
    builder = Builder(root, arguments)
    for step in steps_of_last_stage(steps, arguments):
        builder.do(step)
    image = builder.image
    noted = {"environment": image.environment, "folder": image.folder, **image.settings}
    (root / _SETTINGS).write_text(json.dumps(noted), encoding="utf-8")


def run(root: Path, words: list[str]) -> int:
    """Run the command of what was built, until it ends."""
    image = json.loads((root / _SETTINGS).read_text(encoding="utf-8"))
    words = words or Step("CMD", image["CMD"]).words()
    user, volume = image["USER"], root / image["VOLUME"].lstrip("/")
    inside = f"cd {image['folder']} && exec {shlex.join(['/opt/nvidia/nvidia_entrypoint.sh', *words])}"
    script = f"""
        set -e
        ip link set lo up
        mount --bind {root} {root}
        mount -t proc proc {root}/proc
        mount --rbind /dev {root}/dev
        mount -t tmpfs -o size={_SHARED_MEMORY},mode=1777 shm {root}/dev/shm
        mount -t tmpfs -o mode=1777 tmp {root}/tmp
        mount -t tmpfs -o uid=1000,gid=1000 state {volume}
        mount -o remount,bind,ro {root}
        exec chroot --userspec={user} {root} /bin/sh -c {shlex.quote(inside)}
    """
    unshare = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "bash", "-c", script]
    return subprocess.run(unshare, env=image["environment"], check=False).returncode


def main(arguments: list[str]) -> int:
    """Do what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["build", "run"])
    parser.add_argument("root", type=Path, metavar="ROOT")
    # What begins with a dash is a word like others: it is meant for the container.
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="WORD")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    if not root.is_dir():
        parser.error(f"ROOT: {root} is no folder")
    if options.command == "run":
        return run(root, options.words)
    unclear = [word for word in options.words if "=" not in word]
    if unclear:
        parser.error(f"{unclear[0]!r} is not NAME=VALUE")
    build(root, dict(word.split("=", 1) for word in options.words))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
