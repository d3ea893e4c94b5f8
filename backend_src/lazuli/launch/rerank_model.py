"""The model `rerank` of a checkpoint that `lazuli serve` is given: made anew for each start, served beside the others.

Takes options; writes a model repository, and returns options that serve it too. Run as a module with a checkpoint and
a folder, it is the process that writes, and says on standard output what happens, a line of JSON each.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lazuli.launch.errors import LaunchError
from lazuli.launch.options import Door, ServeOptions

NAME = "rerank"
Show = Callable[[str], None]


def add_here(checkpoint: str, place: Path, show: Show) -> None:
    """Write the model in this process.

    Args:
        checkpoint: What is to rerank.
        place: The repository.
        show: Says what the user should know while it takes time.

    Raises:
        LaunchError: If the checkpoint cannot rerank, or the model cannot be written.
    """
    # Imported here: most starts need none of it.
    from lazuli.repository.addition import Wish, add
    from lazuli.repository.names import Task

    try:
        add(Wish(NAME, checkpoint, place, Task.RERANK, force=True), show)
    except LaunchError as error:
        words = str(error).removeprefix("--checkpoint ").removeprefix("checkpoint: ")
        raise LaunchError(f"--rerank-checkpoint {words}", error.remedy) from error


def add_apart(checkpoint: str, place: Path, show: Show) -> None:
    """As `add_here`, in a process that ends: torch, which reads checkpoints, would stay here while the server runs."""
    command = [sys.executable, "-m", __name__, checkpoint, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said = json.loads(line)
                if "error" in said:
                    raise LaunchError(said["error"], said["remedy"])
                show(said["text"])
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise LaunchError(f"what makes the model {NAME} ended with {process.returncode}")


def with_rerank_model(
    options: ServeOptions, place: Path, show: Show, add: Callable[[str, Path, Show], None] = add_here
) -> ServeOptions:
    """Make the model, if there is a checkpoint for it.

    Args:
        options: Those of the server.
        place: The folder for it; what an earlier start left there is replaced.
        show: Says what the user should know while it takes time.
        add: Writes the model of a checkpoint into a repository.

    Returns:
        The options, with the folder among the repositories.

    Raises:
        LaunchError: If the checkpoint cannot rerank, or the model cannot be written or served.
    """
    if options.rerank_checkpoint is None:
        return options
    if options.door is Door.STREAM:
        raise LaunchError("--rerank-checkpoint needs the unary door", "leave --door out, or add --door both")
    from lazuli.launch.repository import find_repositories, model_names

    repositories = [one for one in find_repositories(options.model_repositories) if one != place.resolve()]
    present = next((one for one in repositories if NAME in model_names(one)), None)
    if present is not None:
        raise LaunchError(
            f"--rerank-checkpoint serves a model {NAME}, but {present} has one of that name already",
            f"leave --rerank-checkpoint out to serve that one, or remove it: lazuli model remove {NAME} "
            f"--repository {shlex.quote(str(present))}",
        )
    add(options.rerank_checkpoint, place, show)
    models = (*options.models, NAME) if options.models else ()
    repositories = find_repositories([*repositories, place])
    return replace(options, model_repositories=tuple(repositories), models=models, rerank_checkpoint=None)


def _say(**words: str) -> None:
    print(json.dumps(words), flush=True)


def _main(checkpoint: str, place: str) -> None:
    try:
        add_here(checkpoint, Path(place), lambda text: _say(text=text))
    except LaunchError as error:
        _say(error=str(error), remedy=error.remedy)


if __name__ == "__main__":
    _main(*sys.argv[1:])
