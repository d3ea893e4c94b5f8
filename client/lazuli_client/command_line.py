"""What the commands of the client share: options, the client, and errors as one line.

Exit codes: 0 done; 1 the server failed; 2 the input, the options or the files are wrong; 130 interrupted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lazuli_client.client import LazuliClient
from lazuli_client.errors import ConnectionFailedError, FileError, InvalidInputError, LazuliError, ModelNotFoundError
from lazuli_client.settings import MAX_ROWS
from lazuli_client.tls import Tls

# About 40 s, because nobody watches a long job: see `RetryPolicy`.
CLI_RETRIES = 30


class ProtocolName(StrEnum):
    """The protocols."""

    GRPC = "grpc"
    HTTP = "http"


class InputType(StrEnum):
    """What texts are."""

    QUERY = "query"
    DOCUMENT = "document"


Url = Annotated[str | None, typer.Option(help="host:port of the server; localhost:8001, or localhost:8000 for http.")]
Model = Annotated[str, typer.Option(help="Name of the model, as `lazuli model add` was told.")]
ProtocolOption = Annotated[ProtocolName, typer.Option(help="Protocol to the server.")]
Column = Annotated[str, typer.Option(help="Name of the text column in .jsonl, .csv and .parquet.")]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", help="Limit of one request in seconds, retries included; the server drops what is late by then."
    ),
]
Retries = Annotated[int, typer.Option(help="Retries of a request while the server is overloaded or away.")]
BatchSize = Annotated[int, typer.Option(min=1, max=MAX_ROWS, help="Texts in one request at most.")]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        help="Encrypt, and trust certificates that this PEM file has signed; also grpcs:// or https:// in --url.",
    ),
]
TlsCert = Annotated[Path | None, typer.Option("--tls-cert", help="PEM file of the client's own certificate.")]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", help="PEM file of its key.")]
TlsName = Annotated[
    str | None, typer.Option("--tls-name", help="Name in the server's certificate, where it is not the host of --url.")
]
# What errors call settings of `Tls`, and what the command line does.
_OPTIONS = {
    "Tls.ca_file": "--tls-ca",
    "Tls.certificate_file": "--tls-cert",
    "Tls.server_name": "--tls-name",
    "tls: ca_file": "--tls-ca",
    "tls: certificate_file": "--tls-cert",
    "tls: key_file": "--tls-key",
    "and key_file": "and --tls-key",
    "but `tls` was given": "but --tls options were given",
}
InFlight = Annotated[int, typer.Option(min=1, help="Requests under way at once.")]


def open_client(
    url: str | None,
    protocol: ProtocolName,
    *,
    model: str,
    timeout_s: float,
    retries: int,
    batch_size: int,
    in_flight: int,
    workload: str | None = None,
    tls: Tls | None = None,
) -> LazuliClient:
    """The client of a command; tests put their own here."""
    return LazuliClient(
        url,
        protocol=protocol.value,
        model=model,
        timeout_s=timeout_s,
        retries=retries,
        rows_per_request=batch_size,
        workload=workload,
        max_in_flight=in_flight,
        tls=tls,
    )


def tls_of(ca: Path | None, cert: Path | None, key: Path | None, name: str | None) -> Tls | None:
    """What the four options ask for; None without any, which leaves it to the scheme of the address."""
    if not (ca or cert or key or name):
        return None
    return Tls(ca_file=ca, certificate_file=cert, key_file=key, server_name=name)


def check_server(client: LazuliClient) -> None:
    """Tell at once that there is no server or no model; a job's retries wait for a server that restarts."""
    error = client.health().error
    if isinstance(error, (ConnectionFailedError, ModelNotFoundError)):
        raise error


@contextmanager
def one_line_errors(interrupted: str) -> Iterator[None]:
    """Turn an exception that is no bug into one line and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        _fail(interrupted, 130)
    except (FileError, InvalidInputError, ValueError) as error:
        _fail(str(error), 2)
    except ConnectionFailedError as error:
        _fail(f"{error}; is the server running? `lazuli serve` starts one", 1)
    except LazuliError as error:
        _fail(f"{type(error).__name__}: {error}", 1)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)


def in_options(message: str) -> str:
    """A message of the library in the words of the command line."""
    for name, option in _OPTIONS.items():
        message = message.replace(name, option)
    return message


def _fail(message: str, code: int) -> None:
    typer.echo("error: " + " ".join(in_options(message).split()), err=True)
    raise typer.Exit(code)
