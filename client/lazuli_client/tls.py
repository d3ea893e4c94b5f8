"""What a client needs to know for a connection with TLS.

Takes names of files; returns what gRPC's channels and HTTP's sockets want. Opens no connection.
"""

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILES = ("ca_file", "certificate_file", "key_file")


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Whom to trust, and who the client is; the defaults are enough for a server with a public certificate.

    Attributes:
        ca_file: PEM of those whose signature under the server's certificate is trusted, or of that certificate itself.
            None for the authorities that the system (HTTP) or gRPC knows.
        certificate_file: PEM of the client's own certificate, for servers that ask for one.
        key_file: PEM of its key.
        server_name: The name that the certificate is for, where it is not the host of the address.

    Raises:
        ValueError: A file cannot be read or is no PEM, or one of the client's two files is missing.
    """

    ca_file: str | Path | None = None
    certificate_file: str | Path | None = None
    key_file: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("tls: certificate_file and key_file belong together; one of them is missing")
        for name in _FILES:
            self._read(name)
        self.ssl_context()

    def grpc_credentials(self) -> Any:
        """`grpc.ChannelCredentials`."""
        import grpc  # type: ignore[import-untyped, unused-ignore]

        return grpc.ssl_channel_credentials(*(self._read(name) for name in ("ca_file", "key_file", "certificate_file")))

    def grpc_options(self) -> list[tuple[str, str]]:
        """Options of a channel."""
        return [("grpc.ssl_target_name_override", self.server_name)] if self.server_name else []

    def ssl_context(self) -> ssl.SSLContext:
        """For sockets, those of asyncio included."""
        context = _Context(ssl.PROTOCOL_TLS_CLIENT)
        context.server_name = self.server_name
        # As gRPC does: what `ca_file` names is trusted, whoever has signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            if self.ca_file is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(self.ca_file)
        except ssl.SSLError as error:
            raise ValueError(f"tls: ca_file {self.ca_file} is no certificate in PEM ({error.reason})") from error
        try:
            if self.certificate_file is not None and self.key_file is not None:
                # Without a password a key that is encrypted would be asked for on the terminal.
                context.load_cert_chain(self.certificate_file, self.key_file, password=b"")
        except ssl.SSLError as error:
            raise ValueError(
                f"tls: certificate_file {self.certificate_file} and key_file {self.key_file} are no certificate "
                f"in PEM with its key ({error.reason})"
            ) from error
        return context

    def _read(self, name: str) -> bytes | None:
        path = getattr(self, name)
        try:
            return None if path is None else Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"tls: {name} {path}: {error.strerror or error}") from error


class _Context(ssl.SSLContext):
    """One that looks for a name of its own in the certificate: aiohttp's sessions have no setting for it."""

    server_name: str | None = None

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: Any = None,
        session: Any = None,
    ) -> ssl.SSLSocket:
        name = self.server_name or server_hostname
        return super().wrap_socket(sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, name, session)

    def wrap_bio(
        self, incoming: Any, outgoing: Any, server_side: bool = False, server_hostname: Any = None, session: Any = None
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name or server_hostname, session)
