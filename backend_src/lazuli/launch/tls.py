"""TLS of the gRPC port, for the probes: those who pass such flags on to tritonserver say no more than that.

Takes flags of tritonserver; returns what a channel to it needs. Its HTTP port has no TLS.
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
        certificate: Of the server, PEM; the one that is trusted.
        key: Its key, where clients have to show a certificate too: the probe shows the server's.
        name: One of those that the certificate is for.
    """

    certificate: bytes
    key: bytes | None
    name: str

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
        return cls(certificate, key if mutual else None, _name_of(values[_CERTIFICATE]))

    def channel(self) -> dict[str, Any]:
        """Arguments for `tritonclient.grpc.InferenceServerClient`."""
        # Imported here: it takes a while that passes while the server loads its models.
        import grpc

        chain = self.certificate if self.key else None
        credentials = grpc.ssl_channel_credentials(self.certificate, self.key, chain)
        # The probe calls 127.0.0.1, which is seldom a name of the certificate.
        return {"creds": credentials, "channel_args": [("grpc.ssl_target_name_override", self.name)]}


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
