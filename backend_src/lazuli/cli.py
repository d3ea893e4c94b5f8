"""The `lazuli` command: `serve`, `health` and `doctor` here, the others from modules of their own.

Turns words of a command line into options. Imports what a command needs only when that command runs.
"""

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from lazuli.launch.options import Door, Dtype, LogLevel
from lazuli.outputs import calibrate_command
from lazuli.repository.cli import app as model_app
from lazuli.verify import command as verify_command

app = typer.Typer(
    name="lazuli",
    help="Text embedding and reranking on a Triton server: start one, check the machine, work on files.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(model_app, name="model")
verify_command.register(app)
calibrate_command.register(app)

_OWN_COMMANDS = {"serve", "health", "doctor", "model", "verify", "calibrate"}

HttpPort = Annotated[int, typer.Option(min=1, max=65535, help="Port of HTTP.")]
GrpcPort = Annotated[int, typer.Option(min=1, max=65535, help="Port of gRPC.")]
MetricsPort = Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prometheus metrics.")]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for every interface.")]
Tritonserver = Annotated[
    Path | None,
    typer.Option(help="The server binary; by default one on PATH, else the container's, else the wheel's."),
]


@app.command()
def serve(
    http_port: HttpPort = 8000,
    grpc_port: GrpcPort = 8001,
    metrics_port: MetricsPort = 8002,
    host: Host = "127.0.0.1",
    model_repository: Annotated[
        list[str] | None,
        typer.Option(
            help="Model repository, or `built-in` for this project's own; may be repeated. By default this project's "
            "own, and the one that `lazuli model add` fills."
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Load only the model of this name; may be repeated. `embed` is built in.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint folder of the built-in model; by default MiniLM.")
    ] = None,
    rerank_checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint of a model `rerank` to serve as well; by default there is none.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Arithmetic of the model.")] = None,
    max_seq_length: Annotated[
        int | None, typer.Option(min=1, help="Most tokens a text, of the built-in model.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads of the engine.")] = None,
    door: Annotated[
        Door, typer.Option(help="Load models for whole answers (unary), for streams, or both.")
    ] = Door.BOTH,
    admin_key: Annotated[
        str | None,
        typer.Option(help="Opens model loading, shared memory, tracing and logging to who sends it; else closed."),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="What of the server's log to show.")] = LogLevel.WARNING,
    tritonserver: Tritonserver = None,
    exit_timeout: Annotated[int, typer.Option(min=0, help="Seconds for requests in flight when stopping.")] = 5,
    start_timeout: Annotated[float, typer.Option(min=1, help="Seconds until every model must answer.")] = 300,
    probe_interval: Annotated[
        float, typer.Option(min=0, help="Seconds between inferences that watch the server; 0 for none.")
    ] = 5,
    probe_timeout: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds without an answer to such an inference, twice, until a model is stuck."),
    ] = 5,
    hang_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds without an answer until even a busy server is restarted.")
    ] = 300,
    max_restarts: Annotated[int, typer.Option(min=0, help="Restarts within ten minutes before giving up.")] = 10,
    health_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port of /live and /ready, which say how every model does; else there are none."
        ),
    ] = None,
    auto_complete_config: Annotated[
        bool,
        typer.Option("--auto-complete-config", help="Let Triton complete config.pbtxt files; starts slower."),
    ] = False,
    flags: Annotated[list[str] | None, typer.Argument(help="After --: more flags for tritonserver.")] = None,
) -> None:
    """Start a Triton server on the models, wait until they answer, and keep it alive until Ctrl-C."""
    from lazuli.launch.errors import LaunchError
    from lazuli.launch.options import ServeOptions
    from lazuli.launch.serve import complain
    from lazuli.launch.serve import serve as run

    try:
        options = ServeOptions(
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            host=host,
            model_repositories=tuple(model_repository or ()),
            models=tuple(model or ()),
            checkpoint=checkpoint,
            rerank_checkpoint=rerank_checkpoint,
            device=device,
            dtype=dtype,
            max_seq_length=max_seq_length,
            threads=threads,
            door=door,
            # Without a key, a random one that nobody knows closes the admin APIs.
            admin_key=admin_key or secrets.token_hex(16),
            log_level=log_level,
            tritonserver=tritonserver,
            exit_timeout_s=exit_timeout,
            start_timeout_s=start_timeout,
            probe_interval_s=probe_interval,
            probe_timeout_s=probe_timeout,
            hang_timeout_s=hang_timeout,
            max_restarts=max_restarts,
            health_port=health_port,
            auto_complete_config=auto_complete_config,
            extra_flags=tuple(flags or ()),
        )
        code = run(options)
    except LaunchError as error:
        complain(error)
        code = 1
    raise typer.Exit(code)


@app.command()
def health(
    http_port: HttpPort = 8000,
    grpc_port: GrpcPort = 8001,
    metrics_port: MetricsPort = 8002,
    host: Annotated[str, typer.Option(help="Where the server is.")] = "127.0.0.1",
    model: Annotated[list[str] | None, typer.Option(help="Ask only this model; may be repeated.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for each model.")] = 5,
    tls_ca: Annotated[
        Path | None, typer.Option(help="gRPC has TLS: PEM of the server's certificate, or of who has signed it.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM of a certificate to show there.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM of its key.")] = None,
    tls_name: Annotated[
        str | None, typer.Option(help="Name in the server's certificate, where it is not --host.")
    ] = None,
) -> None:
    """Ask every model of a running server for a real inference; ends with 0 if all answer, else with 1."""
    from lazuli.launch.errors import LaunchError
    from lazuli.launch.health import check_health
    from lazuli.launch.options import ServeOptions
    from lazuli.launch.serve import complain
    from lazuli.launch.tls import GrpcTls

    try:
        options = ServeOptions(http_port=http_port, grpc_port=grpc_port, metrics_port=metrics_port, host=host)
        tls = GrpcTls.from_files(tls_ca, tls_cert, tls_key, tls_name)
        code = check_health(options, model or [], timeout, tls)
    except LaunchError as error:
        complain(error)
        code = 1
    raise typer.Exit(code)


@app.command()
def doctor(
    http_port: HttpPort = 8000,
    grpc_port: GrpcPort = 8001,
    metrics_port: MetricsPort = 8002,
    host: Host = "127.0.0.1",
    tritonserver: Tritonserver = None,
) -> None:
    """Say what this machine lacks for serving, and how to mend it."""
    from lazuli.launch.doctor import examine
    from lazuli.launch.errors import LaunchError
    from lazuli.launch.options import ServeOptions
    from lazuli.launch.serve import complain

    try:
        options = ServeOptions(
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            host=host,
            tritonserver=tritonserver,
        )
        code = examine(options)
    except LaunchError as error:
        complain(error)
        code = 1
    raise typer.Exit(code)


def main() -> None:
    """Run the command line."""
    # The client's commands are left out where they cannot be meant: a start must not wait for their imports.
    if not set(sys.argv[1:2]) & _OWN_COMMANDS:
        from lazuli_client.cli import register

        register(app)
    app()
