"""What others cannot read: gRPC with TLS, by flags that are passed on to tritonserver, HTTP behind a proxy that has it,
and shared memory."""

import asyncio
import re
import ssl
import stat
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import trustme

from lazuli.launch.addresses import Addresses
from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.probe import Prober
from lazuli.launch.running import running_server
from lazuli.launch.tls import GrpcTls
from lazuli.launch.watch import Watch
from lazuli_client import AsyncLazuliClient, ConnectionFailedError, LazuliClient, Tls, TlsError

from .serving import run
from .supervised import wait_for
from .wire import http_infer

NAME = "embeddings.example"
TEXT = "a blue gem"


@pytest.fixture(scope="module", params=["--grpc-use-ssl=true", "--grpc-use-ssl-mutual=true"])
def mutual(request):
    return "mutual" in request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """PEM files: of an authority, of server and client, which it has signed, and of an authority that nobody knows."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    for role, name in (("server", NAME), ("client", "client.example")):
        issued = authority.issue_cert(name)
        issued.cert_chain_pems[0].write_to_path(folder / f"{role}.pem")
        issued.private_key_pem.write_to_path(folder / f"{role}.key")
    return folder


@pytest.fixture(scope="module")
def secured(mutual, folder):
    flags = [
        "--grpc-use-ssl-mutual=true" if mutual else "--grpc-use-ssl=true",
        f"--grpc-server-cert={folder / 'server.pem'}",
        f"--grpc-server-key={folder / 'server.key'}",
        f"--grpc-root-cert={folder / 'ca.pem'}",
    ]
    with running_server(ServeOptions(door=Door.BOTH, extra_flags=tuple(flags))) as running:
        yield running


async def pump(reader, writer):
    with closing(writer):
        while data := await reader.read(1 << 16):
            writer.write(data)


@pytest.fixture(scope="module")
def proxy(secured, mutual, folder):
    """The address of HTTP with TLS in front of the server, as an ingress has it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    if mutual:
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    host, port = secured.http.split(":")

    async def forward(reader, writer):
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        both = (pump(reader, inner_writer), pump(inner_reader, writer))
        await asyncio.gather(*both, return_exceptions=True)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(forward, "127.0.0.1", 0, ssl=context), loop).result()

    async def end():
        server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    asyncio.run_coroutine_threadsafe(end(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(params=["grpc", "http"])
def address(request, secured, proxy):
    """Arguments of a client that say where the server is."""
    return {"url": secured.grpc if request.param == "grpc" else proxy, "protocol": request.param}


def tls_of(folder, *, ca="ca.pem", shows=True, name=NAME):
    own = {"certificate_file": folder / "client.pem", "key_file": folder / "client.key"} if shows else {}
    return Tls(ca_file=folder / ca, server_name=name, **own)


async def test_clients_read_what_nobody_else_can(secured, folder, address):
    expected = http_infer(secured, [TEXT])[0]
    for tls in (tls_of(folder), tls_of(folder, ca="server.pem")):
        with LazuliClient(**address, tls=tls) as client:
            np.testing.assert_array_equal(client.embed(TEXT).embeddings, expected)
            if address["protocol"] == "grpc":
                (part,) = client.embed_iter([TEXT])
                np.testing.assert_array_equal(part.embeddings, expected)
        async with AsyncLazuliClient(**address, tls=tls) as client:
            np.testing.assert_array_equal((await client.embed(TEXT)).embeddings, expected)


async def refused(kind, match, address, tls):
    """Both clients say so, and at once if trying again is of no use."""
    settings = {**address, "tls": tls, "retries": 24 if kind is TlsError else 0}
    with LazuliClient(**settings) as client, pytest.raises(kind, match=match):
        client.embed(TEXT)
    async with AsyncLazuliClient(**settings) as client:
        with pytest.raises(kind, match=match):
            await client.embed(TEXT)


async def test_what_does_not_fit_is_told(mutual, secured, folder, address):
    await refused(TlsError, "signed by nobody who is trusted", address, tls_of(folder, ca="other.pem"))
    await refused(TlsError, "is for another name", address, tls_of(folder, name=None))
    await refused(TlsError, "is for another name", address, tls_of(folder, name="other.example"))
    plain = {**address, "url": secured.http}
    if address["protocol"] == "http":
        await refused(ConnectionFailedError, "connection to .* failed", plain, tls_of(folder))
        await refused(ConnectionFailedError, "connection to .* failed", address, None)
    else:
        await refused(ConnectionFailedError, "perhaps the port wants TLS", address, None)
    if mutual:
        kind = ConnectionFailedError if address["protocol"] == "grpc" else (TlsError, ConnectionFailedError)
        await refused(kind, "certificate|connection to .* failed", address, tls_of(folder, shows=False))


def test_the_command_line(secured, folder, address, tmp_path):
    (tmp_path / "in.txt").write_text(f"{TEXT}\n")
    files = [f"--tls-cert={folder / 'client.pem'}", f"--tls-key={folder / 'client.key'}"]
    command = ["embed", tmp_path / "in.txt", f"--url={address['url']}", f"--protocol={address['protocol']}", *files]
    done = run(*command, "-o", tmp_path / "out.npy", f"--tls-ca={folder / 'ca.pem'}", f"--tls-name={NAME}")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), http_infer(secured, [TEXT])[0])
    done = run(*command, "-o", tmp_path / "other.npy", f"--tls-ca={folder / 'other.pem'}", f"--tls-name={NAME}")
    assert done.returncode == 1
    assert re.search("^error: TlsError: .*signed by nobody who is trusted", done.stderr, re.MULTILINE)


def test_a_served_model_is_verified(secured, folder, address, tmp_path):
    saved, files = (
        tmp_path / "vectors.npz",
        [f"--tls-cert={folder / 'client.pem'}", f"--tls-key={folder / 'client.key'}"],
    )
    command = ["verify", "embed", f"--url={address['url']}", f"--protocol={address['protocol']}", f"--tls-name={NAME}"]
    command += [*files, "--checkpoint=all-MiniLM-L6-v2", "--reference=none", f"--save={saved}"]
    done = run(*command, f"--tls-ca={folder / 'ca.pem'}")
    assert (done.returncode, done.stderr) == (0, "")
    assert saved.is_file()
    done = run(*command, f"--tls-ca={folder / 'other.pem'}")
    assert done.returncode == 2
    assert "signed by nobody who is trusted" in done.stderr
    done = run(*command, "--tls-ca=/nowhere.pem")
    assert done.returncode == 2
    assert re.search("^error: .*--tls-ca /nowhere.pem: No such file", done.stderr, re.MULTILINE)
    done = run("verify", "all-MiniLM-L6-v2", "--tls-name=x")
    assert done.returncode == 2
    assert "error: tls: only with --url" in done.stderr


def test_probes(secured, folder):
    """That of `lazuli health`, and those of the supervisor, which reads the flags."""
    ports = [f"--{name}-port={getattr(secured, name).split(':')[1]}" for name in ("http", "grpc", "metrics")]
    files = [f"--tls-cert={folder / 'client.pem'}", f"--tls-key={folder / 'client.key'}", f"--tls-name={NAME}"]
    done = run("health", *ports, *files, f"--tls-ca={folder / 'ca.pem'}")
    assert sorted(line.split()[:2] for line in done.stdout.splitlines()) == [["ok", "embed"], ["ok", "embed_stream"]]
    assert done.returncode == 0
    done = run("health", *ports, "--model=embed_stream")
    assert done.returncode == 1
    assert "if its port wants TLS, see --tls-ca" in done.stdout
    done = run("health", *ports, *files, f"--tls-ca={folder / 'other.pem'}", "--model=embed")
    assert done.returncode == 1
    assert "CERTIFICATE_VERIFY_FAILED" in done.stdout

    command = Path(f"/proc/{secured.process.pid}/cmdline").read_text().split("\0")
    prober = Prober(
        Addresses(secured.http, secured.grpc, secured.metrics), secured.admin_key, GrpcTls.from_flags(command)
    )
    models = prober.served_models()
    asked = prober.success_count("embed_stream")
    watch = Watch(secured.process, prober, models, 0.2, 60.0)
    try:
        wait_for(lambda: prober.success_count("embed_stream") >= asked + 2, "two probes over TLS")
        assert (watch.complaints(), watch.fault()) == ({}, None)
    finally:
        watch.close()


def test_no_other_account_can_read_what_goes_through_shared_memory(secured):
    command = Path(f"/proc/{secured.process.pid}/cmdline").read_text()
    prefix = re.search(r"shm-region-prefix-name=(\w+)", command)[1]
    regions = list(Path("/dev/shm").glob(f"{prefix}*"))
    assert len(regions) == 3  # one a process
    assert {stat.S_IMODE(region.stat().st_mode) for region in regions} == {0o600}
