"""The model `rerank` of a checkpoint that `lazuli serve` is given: made anew for each start, served beside the others.

Takes options; writes a model repository, and returns options that serve it too.
"""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lazuli.launch.errors import LaunchError
from lazuli.launch.options import Door, ServeOptions

NAME = "rerank"


def with_rerank_model(options: ServeOptions, place: Path, show: Callable[[str], None]) -> ServeOptions:
    """Make the model, if there is a checkpoint for it.

    Args:
        options: Those of the server.
        place: The folder for it; what an earlier start left there is replaced.
        show: Says what the user should know while it takes time.

    Returns:
        The options, with the folder among the repositories.

    Raises:
        LaunchError: If the checkpoint cannot rerank, or the model cannot be written or served.
    """
    if options.rerank_checkpoint is None:
        return options
    if options.door is Door.STREAM:
        raise LaunchError("--rerank-checkpoint needs the unary door", "leave --door out, or add --door both")
    # Imported here: most starts need none of it.
    from lazuli.launch.repository import find_repositories, model_names
    from lazuli.repository.addition import Wish, add
    from lazuli.repository.names import Task

    repositories = [one for one in find_repositories(options.model_repositories) if one != place.resolve()]
    present = next((one for one in repositories if NAME in model_names(one)), None)
    if present is not None:
        raise LaunchError(
            f"--rerank-checkpoint serves a model {NAME}, but {present} has one of that name already",
            f"leave --rerank-checkpoint out to serve that one, or remove it: lazuli model remove {NAME} "
            f"--repository {shlex.quote(str(present))}",
        )
    add(Wish(NAME, options.rerank_checkpoint, place, Task.RERANK, force=True), show)
    models = (*options.models, NAME) if options.models else ()
    repositories = find_repositories([*repositories, place])
    return replace(options, model_repositories=tuple(repositories), models=models, rerank_checkpoint=None)
