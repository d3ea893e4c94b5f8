"""What others cannot read: gRPC with TLS, by flags that are passed on to tritonserver, and shared memory."""

import re
import stat
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import trustme
from tritonclient.utils import InferenceServerException

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server

from .wire import grpc_infer, http_infer, text_input

NAME = "embeddings.example"


@pytest.fixture(scope="module", params=["--grpc-use-ssl=true", "--grpc-use-ssl-mutual=true"])
def mutual(request):
    return "mutual" in request.param


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def secured(mutual, authority, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert(NAME)
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    flags = [
        "--grpc-use-ssl-mutual=true" if mutual else "--grpc-use-ssl=true",
        f"--grpc-server-cert={folder / 'cert.pem'}",
        f"--grpc-server-key={folder / 'key.pem'}",
        f"--grpc-root-cert={folder / 'ca.pem'}",
    ]
    with running_server(ServeOptions(door=Door.BOTH, extra_flags=tuple(flags))) as running:
        yield running


def infer(server, root, key, certificate):
    """One request by a client that trusts `root`, and shows a certificate if there is one."""
    credentials = grpc.ssl_channel_credentials(root, key, certificate)
    names = [("grpc.ssl_target_name_override", NAME)]
    with triton_grpc.InferenceServerClient(server.grpc, creds=credentials, channel_args=names) as client:
        result = client.infer("embed", [text_input(triton_grpc, ["a blue gem"])], client_timeout=10)
    return result.as_numpy("embedding")


def test_clients_need_tls_and_what_else_is_asked_for(secured, mutual, authority):
    issued = authority.issue_cert("client.example")
    key, certificate = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
    vectors = infer(secured, authority.cert_pem.bytes(), key, certificate)
    np.testing.assert_array_equal(vectors, http_infer(secured, ["a blue gem"])[0])
    with pytest.raises(InferenceServerException):
        grpc_infer(secured, ["a blue gem"])
    if mutual:
        with pytest.raises(InferenceServerException):
            infer(secured, authority.cert_pem.bytes(), None, None)


def test_no_other_account_can_read_what_goes_through_shared_memory(secured):
    command = Path(f"/proc/{secured.process.pid}/cmdline").read_text()
    prefix = re.search(r"shm-region-prefix-name=(\w+)", command)[1]
    regions = list(Path("/dev/shm").glob(f"{prefix}*"))
    assert len(regions) == 3  # one a process
    assert {stat.S_IMODE(region.stat().st_mode) for region in regions} == {0o600}
