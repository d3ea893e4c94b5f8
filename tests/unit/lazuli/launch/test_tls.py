"""What probes read from tritonserver's TLS flags, tried against a gRPC server of Python."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import trustme

from lazuli.launch.errors import LaunchError
from lazuli.launch.tls import GrpcTls


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    """Makes the files of a certificate for some names; returns their flags."""

    def make(*names):
        issued = authority.issue_cert(*names)
        certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        return [f"--grpc-server-cert={certificate}", "--grpc-server-key", str(key)]

    return make


def reaches(server_credentials, tls, patience_s=30):
    """Whether a channel as the probes open it gets through to a server."""
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        port = server.add_secure_port("127.0.0.1:0", server_credentials)
        server.start()
        arguments = tls.channel()
        with grpc.secure_channel(f"127.0.0.1:{port}", arguments["creds"], arguments["channel_args"]) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=patience_s)
                return True
            except grpc.FutureTimeoutError:
                return False
            finally:
                server.stop(None).wait()


def read(flags):
    certificate, key = flags[0].partition("=")[2], flags[2]
    with open(certificate, "rb") as one, open(key, "rb") as other:
        return one.read(), other.read()


@pytest.mark.parametrize("flags", [[], ["--grpc-use-ssl=false"], ["--id=a", "--grpc-server-cert=/nowhere"]])
def test_no_tls(flags):
    assert GrpcTls.from_flags(flags) is None


@pytest.mark.parametrize("names", [["embeddings.example"], ["*.svc.cluster.local"], ["10.0.0.7"]])
def test_the_certificate_is_trusted_whatever_its_names_are(files, names):
    flags = files(*names)
    certificate, key = read(flags)
    tls = GrpcTls.from_flags(["--grpc-use-ssl=true", *flags])
    assert (tls.key, tls.chain) == (None, None)
    assert reaches(grpc.ssl_server_credentials([(key, certificate)]), tls)


def test_another_certificate_is_not_trusted(files, authority):
    tls = GrpcTls.from_flags(["--grpc-use-ssl", "1", *files("embeddings.example")])
    other = authority.issue_cert("embeddings.example")
    pair = (other.private_key_pem.bytes(), other.cert_chain_pems[0].bytes())
    assert not reaches(grpc.ssl_server_credentials([pair]), tls, patience_s=2)


def test_the_probe_shows_the_certificate_where_one_is_wanted(files, authority):
    flags = files("embeddings.example")
    certificate, key = read(flags)
    tls = GrpcTls.from_flags(["--grpc-use-ssl-mutual=true", *flags])
    wants = grpc.ssl_server_credentials([(key, certificate)], authority.cert_pem.bytes(), require_client_auth=True)
    assert reaches(wants, tls)


def test_faults_name_the_flag(files, tmp_path):
    certificate = files("embeddings.example")[0]
    with pytest.raises(LaunchError, match="--grpc-server-cert is missing"):
        GrpcTls.from_flags(["--grpc-use-ssl=true"])
    with pytest.raises(LaunchError, match=r"--grpc-server-key /nowhere: No such file"):
        GrpcTls.from_flags(["--grpc-use-ssl=true", certificate, "--grpc-server-key=/nowhere"])
    (tmp_path / "text").write_text("no certificate")
    flags = [f"--grpc-server-cert={tmp_path / 'text'}", f"--grpc-server-key={tmp_path / 'text'}"]
    with pytest.raises(LaunchError, match="is no certificate in PEM"):
        GrpcTls.from_flags(["--grpc-use-ssl=true", *flags])


def test_a_command_line_names_files(files, authority, tmp_path):
    flags = files("embeddings.example")
    certificate, key = read(flags)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = {"cert": tmp_path / "server.pem", "key": tmp_path / "server.key"}
    wants = grpc.ssl_server_credentials([(key, certificate)], authority.cert_pem.bytes(), require_client_auth=True)
    assert reaches(wants, GrpcTls.from_files(tmp_path / "ca.pem", **own, name="embeddings.example"))
    assert not reaches(wants, GrpcTls.from_files(tmp_path / "ca.pem", **own, name=None), patience_s=2)
    assert GrpcTls.from_files(None, None, None, None) is None
    with pytest.raises(LaunchError, match="--tls-cert and --tls-key belong together"):
        GrpcTls.from_files(None, own["cert"], None, None)
    with pytest.raises(LaunchError, match="--tls-ca /nowhere: No such file"):
        GrpcTls.from_files(Path("/nowhere"), None, None, None)
