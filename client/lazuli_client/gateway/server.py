"""Runs the gateway: uvicorn with one process or several.

Takes settings, returns when it was told to stop and all requests under way were answered.
"""

import logging
import os
import resource
import signal
import socket
import ssl
import tempfile
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import uvicorn
from uvicorn.supervisors import Multiprocess

from lazuli_client.gateway import metrics
from lazuli_client.gateway.guard import rate
from lazuli_client.gateway.guard.protocol import LimitedHttp
from lazuli_client.gateway.settings import ENVIRONMENT, GatewaySettings

_FACTORY = "lazuli_client.gateway.app:from_environment"
# Load balancers keep connections for a minute; one that is closed first by the server loses a request now and then.
_KEEP_ALIVE_S = 75
_BACKLOG = 4096


def serve(settings: GatewaySettings) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        ValueError: If certificate or key cannot be used.
        SystemExit: If it cannot listen; a line in the log says where and why.
    """
    _check_certificate(settings.tls_cert, settings.tls_key)
    _allow_many_connections()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    os.environ[ENVIRONMENT] = msgspec.json.encode(settings).decode()
    with tempfile.TemporaryDirectory(prefix="lazuli-gateway-") as folder:
        if settings.workers > 1:  # before the metrics library is asked for its first figure
            os.environ[metrics.FOLDER] = folder
            os.environ[rate.FILE] = os.path.join(folder, "rates")
        config = uvicorn.Config(
            _FACTORY,
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            loop="uvloop",
            http=partial(LimitedHttp, arrival_timeout_s=settings.body_timeout_s),  # type: ignore[arg-type]
            ws="none",
            lifespan="on",
            log_config=_logging(),
            access_log=False,  # the guard writes its own
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=settings.drain_s,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        if settings.workers > 1:
            Workers(config, [_listening(config)]).run()
        else:
            _check_address(config)
            uvicorn.Server(config).run()


class Workers(Multiprocess):
    """Several processes that listen at one socket, which is closed as soon as they are told to stop."""

    def terminate_all(self) -> None:
        """Tell them to stop."""
        # Were it open here, connections would be taken until the last worker has ended, and answered by nobody.
        for listener in self.sockets:
            listener.close()
        super().terminate_all()


def _listening(config: uvicorn.Config) -> socket.socket:
    """The socket of all processes.

    Raises:
        SystemExit: If nobody can listen there. uvicorn's own is only bound, which several may be at one port, and the
            processes would not say that they cannot listen.
    """
    host, port = config.host, config.port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for_both = family is socket.AF_INET6 and socket.has_dualstack_ipv6()
        listener = socket.create_server((host, port), family=family, backlog=config.backlog, dualstack_ipv6=for_both)
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(config, error) from None
    logging.getLogger("uvicorn.error").info("listening on %s:%d", host, port)
    listener.set_inheritable(True)
    return listener


def _check_address(config: uvicorn.Config) -> None:
    """Listen for a moment where the one process will: uvicorn tries that only after the application has started.

    Raises:
        SystemExit: If nobody can listen there.
    """
    try:
        found = socket.getaddrinfo(config.host or None, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            try:
                probe = socket.socket(family, kind, protocol)
            except OSError:  # of a family that this machine has not: uvicorn leaves it out, too
                continue
            with probe:
                # As uvicorn's event loop does.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family is socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
                probe.listen()
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(config, error) from None


def _cannot_listen(config: uvicorn.Config, error: OSError | UnicodeError) -> SystemExit:
    """Say it in one line, which names the options; returns the end of the process."""
    number = getattr(error, "errno", None) or 0
    # Without a number it is a name that is not found, or cannot be one. The rest are Python's own words.
    said = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
    reason = said.partition(" (while")[0]
    log = logging.getLogger("uvicorn.error")
    log.error("cannot listen on %s:%d, as --host and --port say: %s", config.host, config.port, reason)
    return SystemExit(1)


def _check_certificate(chain: str | None, key: str | None) -> None:
    """Say which file is wrong; OpenSSL names none.

    Raises:
        ValueError: If one cannot be used.
    """
    if chain is None or key is None:
        return
    for name, path, what in (("tls_cert", chain, b"CERTIFICATE-----"), ("tls_key", key, b"PRIVATE KEY-----")):
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"{name}: {path} cannot be read: {error.strerror}") from None
        if what not in content:
            raise ValueError(f"{name}: {path} is no PEM file with a line -----BEGIN ... {what.decode()}")
        if b"ENCRYPTED" in content:  # OpenSSL would ask for the password at the terminal
            raise ValueError(f"{name}: {path} is encrypted; a key without a password is needed")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key)
    except ssl.SSLError as error:
        is_other = error.reason == "KEY_VALUES_MISMATCH"
        reason = "the key is not that of the certificate" if is_other else str(error)
        raise ValueError(f"tls_cert and tls_key: {chain} and {key} cannot be used: {reason}") from None


def _end(number: int, frame: FrameType | None) -> None:
    """What uvicorn calls when it has stopped: to be told to stop is no failure."""
    raise SystemExit(0)


def _allow_many_connections() -> None:
    """Each connection is a file; the usual soft limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _logging() -> dict[str, Any]:
    """Lines for people to standard error, and for each request a line of JSON to standard output."""
    names = {"lazuli_client.gateway": "people", "uvicorn.error": "people", "lazuli_client.gateway.access": "access"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "people": {"format": "%(asctime)s %(levelname)s %(process)d %(message)s"},
            "access": {"format": "%(message)s"},
        },
        "handlers": {
            "people": {"class": "logging.StreamHandler", "formatter": "people", "stream": "ext://sys.stderr"},
            "access": {"class": "logging.StreamHandler", "formatter": "access", "stream": "ext://sys.stdout"},
        },
        "loggers": {
            name: {"handlers": [handler], "level": logging.getLevelName(logging.INFO), "propagate": False}
            for name, handler in names.items()
        },
    }
