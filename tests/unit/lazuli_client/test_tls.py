"""What a client is told about TLS: files that are wrong are named before anything is sent."""

import pytest
import trustme
import typer

from lazuli_client import ConnectionFailedError, LazuliClient, Tls, TlsError
from lazuli_client.command_line import one_line_errors, tls_of
from lazuli_client.errors import from_grpc_status, tls_trouble
from lazuli_client.retry import RetryPolicy
from lazuli_client.settings import Settings


@pytest.fixture
def files(tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("client.example")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    return tmp_path


def test_files_that_fit_are_taken(files):
    tls = Tls(ca_file=files / "ca.pem", certificate_file=files / "cert.pem", key_file=files / "key.pem")
    assert tls.ssl_context().cert_store_stats()["x509_ca"] == 1
    assert tls.grpc_options() == []
    assert Tls(server_name="a.example").grpc_options() == [("grpc.ssl_target_name_override", "a.example")]


def test_files_that_do_not_fit_are_named(files):
    with pytest.raises(ValueError, match="tls: ca_file /nowhere: No such file"):
        Tls(ca_file="/nowhere")
    with pytest.raises(ValueError, match=r"tls: ca_file .*key.pem is no certificate"):
        Tls(ca_file=files / "key.pem")
    with pytest.raises(ValueError, match="tls: certificate_file and key_file belong together"):
        Tls(certificate_file=files / "cert.pem")
    trustme.CA().issue_cert("other.example").private_key_pem.write_to_path(files / "other.pem")
    with pytest.raises(ValueError, match=r"tls: certificate_file .*cert.pem and key_file .*other.pem"):
        Tls(certificate_file=files / "cert.pem", key_file=files / "other.pem")


@pytest.mark.parametrize(("plain", "secure", "protocol"), [("grpc", "grpcs", "grpc"), ("http", "https", "http")])
def test_the_scheme_of_the_address(plain, secure, protocol):
    settings = Settings(url=f"{secure}://host:1", protocol=protocol)
    assert (settings.address, settings.tls) == ("host:1", Tls())
    assert Settings(url=f"{plain}://host:1", protocol=protocol).tls is None
    tls = Tls(server_name="a.example")
    assert Settings(url=f"{secure}://host:1", protocol=protocol, tls=tls).tls is tls
    assert Settings(url="host:1", protocol=protocol, tls=tls).tls is tls
    with pytest.raises(ValueError, match=f"there is no TLS.* use {secure}://"):
        LazuliClient(f"{plain}://host:1", protocol=protocol, tls=tls)


def test_the_command_line(files):
    assert tls_of(None, None, None, None) is None
    assert tls_of(files / "ca.pem", None, None, "a.example") == Tls(ca_file=files / "ca.pem", server_name="a.example")


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (tls_trouble("certificate verify failed"), "(--tls-ca)"),
        (tls_trouble("hostname mismatch"), "(--tls-name)"),
        (tls_trouble("alert bad certificate"), "(--tls-cert)"),
        (ValueError("tls: ca_file a.pem: no such file"), "error: --tls-ca a.pem: no such file"),
        (
            ValueError("tls: certificate_file and key_file belong together"),
            "error: --tls-cert and --tls-key belong together",
        ),
    ],
)
def test_the_command_line_names_its_own_options(error, names, capsys):
    with pytest.raises(typer.Exit), one_line_errors("interrupted"):
        raise error
    assert names in capsys.readouterr().err


def test_an_address_of_another_protocol_says_how_to_ask_for_tls():
    with pytest.raises(ValueError, match=r"give host:port, or for TLS https://host:port"):
        Settings(url="grpcs://host:1", protocol="http")


def test_trouble_with_certificates_is_not_tried_again_but_a_server_that_hangs_up_is():
    failed = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
    final = from_grpc_status(
        "UNAVAILABLE", failed + "CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate"
    )
    assert isinstance(final, TlsError)
    assert RetryPolicy().next_delay_s(final, 0, 60) is None
    passing = from_grpc_status("UNAVAILABLE", failed + "Socket closed")
    assert isinstance(passing, ConnectionFailedError)
    assert "perhaps the port wants TLS" in str(passing)
    assert RetryPolicy().next_delay_s(passing, 0, 60) is not None
