"""TLS of the gRPC port, for the probes.

Takes flags of tritonserver, as those who pass them on say no more than that, or names of files; returns what a channel
needs. Triton's HTTP port has no TLS.
"""

import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lazuli.launch.errors import LaunchError

_USE, _MUTUAL = "--grpc-use-ssl", "--grpc-use-ssl-mutual"
_CERTIFICATE, _KEY = "--grpc-server-cert", "--grpc-server-key"
_TRUE = ("true", "1", "on")


@dataclass(frozen=True)
class GrpcTls:
    """How to come in.

    Attributes:
        roots: Certificates, PEM, that are trusted, and those that they have signed; None for what gRPC trusts.
        chain: The certificate that the probe shows, where clients have to.
        key: Its key.
        name: One of those that the server's certificate is for; None for the host that is called.
    """

    roots: bytes | None
    chain: bytes | None
    key: bytes | None
    name: str | None

    @classmethod
    def from_flags(cls, flags: Sequence[str]) -> "GrpcTls | None":
        """Read the flags; None if they do not ask for TLS.

        Raises:
            LaunchError: The certificate or its key cannot be read.
        """
        values = dict(_read(flags))
        mutual = values.get(_MUTUAL, "").lower() in _TRUE
        if not mutual and values.get(_USE, "").lower() not in _TRUE:
            return None
        certificate, key = (_content(flag, values.get(flag)) for flag in (_CERTIFICATE, _KEY))
        # The probe calls 127.0.0.1, which is seldom a name of the certificate.
        name = _name_of(values[_CERTIFICATE])
        return cls(certificate, certificate if mutual else None, key if mutual else None, name)

    @classmethod
    def from_files(cls, ca: Path | None, cert: Path | None, key: Path | None, name: str | None) -> "GrpcTls | None":
        """What a command line says; None if it says nothing.

        Raises:
            LaunchError: A file cannot be read, or one of the last two is missing.
        """
        if not (ca or cert or key or name):
            return None
        if (cert is None) != (key is None):
            raise LaunchError("--tls-cert and --tls-key belong together; one of them is missing")
        files = {"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key}
        roots, chain, secret = (_content(flag, str(path)) if path else None for flag, path in files.items())
        return cls(roots, chain, secret, name)

    def channel(self) -> dict[str, Any]:
        """Arguments for `tritonclient.grpc.InferenceServerClient`."""
        # Imported here: it takes a while that passes while the server loads its models.
        import grpc

        credentials = grpc.ssl_channel_credentials(self.roots, self.key, self.chain)
        names = [("grpc.ssl_target_name_override", self.name)] if self.name else []
        return {"creds": credentials, "channel_args": names}


def _read(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags and values, written as one word or as two."""
    for word, following in zip_longest(flags, flags[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            yield name, value if equals else following


def _content(flag: str, path: str | None) -> bytes:
    if not path:
        raise LaunchError(f"{flag} is missing, but {_USE} asks for TLS")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise LaunchError(f"{flag} {path}: {error.strerror or error}") from None


def _name_of(path: str) -> str:
    """A name that the certificate is for."""
    try:
        # Nothing public reads a certificate that is nobody's answer.
        fields: dict[str, Any] = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
    except (ssl.SSLError, OSError) as error:
        raise LaunchError(f"{_CERTIFICATE} {path} is no certificate in PEM ({error})") from None
    names = [value for kind, value in fields.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    names += [value for part in fields.get("subject", ()) for kind, value in part if kind == "commonName"]
    if not names:
        raise LaunchError(f"{_CERTIFICATE} {path} names no host")
    return str(names[0]).replace("*", "probe", 1)
