"""The command `gateway`.

Takes the command line, serves until it is told to stop. Imports the server only when it runs.
"""

from pathlib import Path
from typing import Annotated

import typer

from lazuli_client.command_line import one_line_errors
from lazuli_client.errors import FileError

_NEEDED = ("starlette", "uvicorn", "uvloop", "httptools", "orjson", "msgspec", "pybase64", "prometheus_client")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(gateway)


def gateway(
    replica: Annotated[
        list[str] | None, typer.Option(help="host:port of a server's gRPC; may be repeated. By default 127.0.0.1:8001.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for every interface.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model to offer; may be repeated. By default embed, rerank and classify, as far as there are."
        ),
    ] = None,
    alias: Annotated[
        list[str] | None, typer.Option(help="NAME=MODEL: another name for a model; may be repeated.")
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(help="[MODEL=]CHECKPOINT: tokenise here, not in the server; may be repeated."),
    ] = None,
    max_seq_length: Annotated[
        int | None, typer.Option(min=1, help="Most tokens a text, as the server was told; with --tokenizer.")
    ] = None,
    api_keys: Annotated[
        Path | None, typer.Option(help="File of API keys, one a line; others come from LAZULI_GATEWAY_API_KEYS.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="Origin whose pages may call; may be repeated. None by default.")
    ] = None,
    max_body_mb: Annotated[int, typer.Option(min=1, help="Largest body of a request.")] = 16,
    max_rows: Annotated[int, typer.Option(min=1, help="Most texts of a request.")] = 2048,
    max_requests: Annotated[int, typer.Option(min=1, help="Requests under way; each process has its share.")] = 512,
    rate: Annotated[float, typer.Option(min=0, help="Requests a second for each key; 0 for no limit.")] = 0.0,
    timeout: Annotated[float, typer.Option(help="Limit of one request in seconds.")] = 60.0,
    body_timeout: Annotated[
        float, typer.Option(help="Seconds until a request's head must be there, and then its body.")
    ] = 20.0,
    queue: Annotated[float, typer.Option(help="Seconds that a request waits for a server that takes it.")] = 30.0,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Larger requests are cut into chunks of these.")] = 8192,
    query_tokens: Annotated[
        int, typer.Option(min=0, help="Larger requests are bulk, which lets others go first.")
    ] = 1024,
    bulk_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of bulk that are sent to a server at a time.")
    ] = 32768,
    probe_interval: Annotated[float, typer.Option(help="Seconds between inferences that watch a server.")] = 1.0,
    probe_timeout: Annotated[float, typer.Option(help="Seconds without an answer until a server is taken out.")] = 3.0,
    drain: Annotated[int, typer.Option(min=0, help="Seconds for requests under way when stopping.")] = 30,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of the certificate chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    access_log: Annotated[bool, typer.Option(help="A line of JSON for each request.")] = True,
) -> None:
    """Serve OpenAI's, Cohere's, Jina's and TEI's HTTP APIs in front of running servers, until Ctrl-C."""
    with one_line_errors("stopped"):
        _check_packages()
        from lazuli_client.gateway.app import create
        from lazuli_client.gateway.server import serve
        from lazuli_client.gateway.settings import GatewaySettings

        models = tuple(model or GatewaySettings().models)
        settings = GatewaySettings(
            host=host,
            port=port,
            workers=workers,
            replicas=tuple(replica or GatewaySettings().replicas),
            models=models,
            aliases=dict(_pair("alias", one) for one in alias or ()),
            tokenizers=dict(_pair("tokenizer", one, models[0]) for one in tokenizer or ()),
            max_seq_length=max_seq_length,
            api_keys_file=None if api_keys is None else str(api_keys),
            cors_origins=tuple(cors_origin or ()),
            max_body_bytes=max_body_mb << 20,
            max_rows=max_rows,
            max_requests=max_requests,
            requests_per_s=rate,
            timeout_s=timeout,
            body_timeout_s=body_timeout,
            queue_s=queue,
            chunk_tokens=chunk_tokens,
            query_tokens=query_tokens,
            bulk_tokens=bulk_tokens,
            probe_interval_s=probe_interval,
            probe_timeout_s=probe_timeout,
            drain_s=drain,
            tls_cert=None if tls_cert is None else str(tls_cert),
            tls_key=None if tls_key is None else str(tls_key),
            access_log=access_log,
        )
        create(settings)  # what is wrong with keys and tokenizers is said at once, and in one line
        serve(settings)


def _pair(option: str, text: str, default: str | None = None) -> tuple[str, str]:
    """NAME=VALUE; without NAME, `default` stands for it.

    Raises:
        ValueError: If there is no name.
    """
    name, separator, value = text.partition("=")
    if not separator and default is not None:
        return default, text
    if not separator or not name or not value:
        raise ValueError(f"--{option}: {text!r}, but NAME=VALUE is needed")
    return name, value


def _check_packages() -> None:
    from importlib.util import find_spec

    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise FileError(f"{', '.join(missing)}: not installed; `pip install 'lazuli[gateway]'` has all that is needed")
