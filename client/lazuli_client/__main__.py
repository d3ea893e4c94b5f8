"""`python -m lazuli_client`: the commands of the client alone, for a machine without the server package."""

import typer

from lazuli_client.cli import register

app = typer.Typer(
    name="lazuli_client",
    help="Embed and search texts on a Lazuli server.",
    no_args_is_help=True,
    add_completion=False,
)
register(app)

if __name__ == "__main__":
    app()
