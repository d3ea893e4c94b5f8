"""The commands `lazuli model add`, `list` and `remove`.

Takes the command line; prints. Exit codes: 0 done; 1 the hub or the disk failed; 2 the name, the options, the
checkpoint or the repository are wrong. Imports what a command needs only when that command runs.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from lazuli.launch.options import Door, Dtype
from lazuli.repository.names import Task

app = typer.Typer(help="Add, list and remove models beside the built-in one.", no_args_is_help=True)

Repository = Annotated[
    Path | None,
    typer.Option(help="Folder of models; by default the one in your data folder, which `lazuli serve` looks at."),
]
Name = Annotated[str, typer.Argument(help="Name of the model.")]


@app.command("add")
def add_model(
    name: Annotated[str, typer.Argument(help="Name to call it by: letters, digits and . _ -")],
    checkpoint: Annotated[
        str, typer.Option(help="Hugging Face folder, packaged checkpoint, or org/name[@revision] of the hub.")
    ],
    task: Annotated[
        Task | None, typer.Option(help="What the model computes; by default what the checkpoint is made for.")
    ] = None,
    repository: Repository = None,
    max_seq_length: Annotated[
        int | None, typer.Option(min=1, help="Most tokens a text; by default as the checkpoint says.")
    ] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Arithmetic; by default as `lazuli serve` says.")] = None,
    pooling: Annotated[str | None, typer.Option(help="mean, cls or last; by default as the checkpoint says.")] = None,
    door: Annotated[
        Door, typer.Option(help="Make it for whole answers (unary), for streams, or both, where its task has both.")
    ] = Door.BOTH,
    parameter: Annotated[
        list[str] | None, typer.Option("--set", help="Any other parameter of config.pbtxt, NAME=VALUE; repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model if it exists.")] = False,
) -> None:
    """Check a checkpoint and add it to a model repository, to be served under NAME."""
    with _told_errors():
        from lazuli.repository.addition import Wish, add
        from lazuli.repository.text import describe

        options = {"max_seq_length": max_seq_length, "dtype": dtype, "pooling": pooling}
        parameters = {key: str(value) for key, value in options.items() if value is not None}
        parameters |= dict(map(_split, parameter or []))
        place = _place(repository)
        wish = Wish(name, checkpoint, place, task, door, parameters, force)
        typer.echo(describe(add(wish, _say), place))


@app.command("list")
def list_models(repository: Repository = None) -> None:
    """Show the models of a repository; by default of all that `lazuli serve` looks at."""
    with _told_errors():
        from lazuli.repository.catalog import entries
        from lazuli.repository.text import table

        tables = [(place, table(entries(place))) for place in _places(repository)]
        heads = len(tables) > 1
        typer.echo("\n\n".join(f"{place}\n{text}" if heads else text for place, text in tables))


@app.command("remove")
def remove_model(
    name: Name,
    repository: Repository = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a model that was added. Its checkpoint stays."""
    with _told_errors():
        from lazuli.repository.catalog import folders_of, remove

        place = _place(repository)
        folders = folders_of(place, name)
        if not yes:
            typer.confirm(f"remove {', '.join(folders)} from {place}?", abort=True)
        remove(place, folders)
        typer.echo(f"removed {', '.join(folders)} from {place}")


def _places(repository: Path | None) -> list[Path]:
    """The repository that was named, else all that `lazuli serve` would look at."""
    from lazuli.launch.repository import find_repositories
    from lazuli.repository.errors import RepositoryError

    if repository is None:
        return find_repositories()
    if not repository.is_dir():
        raise RepositoryError(f"--repository {repository} is not a folder")
    return [repository]


def _place(repository: Path | None) -> Path:
    from lazuli.launch.folders import user_models

    return repository.expanduser().absolute() if repository else user_models()


def _split(text: str) -> tuple[str, str]:
    from lazuli.repository.errors import RepositoryError

    key, separator, value = text.partition("=")
    if not separator or not key:
        raise RepositoryError(f"--set {text!r} is not NAME=VALUE")
    if key == "checkpoint":
        raise RepositoryError("--set checkpoint: use --checkpoint")
    return key, value


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _told_errors() -> Iterator[None]:
    """Print an error with its remedy and exit."""
    from lazuli.launch.errors import LaunchError
    from lazuli.launch.serve import complain
    from lazuli.repository.errors import RepositoryError

    try:
        yield
    except LaunchError as error:
        complain(error)
        raise typer.Exit(error.exit_code if isinstance(error, RepositoryError) else 1) from None
