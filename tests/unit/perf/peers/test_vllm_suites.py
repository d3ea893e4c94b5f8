"""What starts vLLM's server and the suites, with small programs in their place."""

import argparse
import os
import sys

import pytest

from peers import vllm_suites
from peers.vllm_suites import server_command

SERVER = """
import http.server, os, sys
print("PYTHONPATH" in os.environ, flush=True)
open({pid!r}, "w").write(str(os.getpid()))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", {port}), Handler).serve_forever()
"""


@pytest.fixture
def options(tmp_path, unused_tcp_port):
    return argparse.Namespace(
        target=tmp_path,
        lazuli=tmp_path,
        port=unused_tcp_port,
        memory=0.3,
        vllm="--enforce-eager --seed 1",
        name="vllm",
        suites=["latency"],
        start_timeout=20.0,
    )


def test_the_server_gets_its_options(tmp_path, options):
    command = server_command(tmp_path / "python", "/model", "512", options)
    assert command[:4] == [str(tmp_path / "python"), "-m", "vllm.entrypoints.cli.main", "serve"]
    assert command[command.index("--max-model-len") + 1] == "512"
    assert command[-3:] == ["--enforce-eager", "--seed", "1"]


def test_the_server_ends_with_the_suites_and_logs_are_kept(tmp_path, options, monkeypatch):
    perf = tmp_path / "perf"
    perf.mkdir()
    (perf / "run_several.py").write_text("import sys; print('arguments', sys.argv[1:]); sys.exit(1)")
    monkeypatch.setattr(vllm_suites, "PERF", perf)
    code = SERVER.format(pid=str(tmp_path / "pid"), port=options.port)
    environment = os.environ | {"PYTHONPATH": "/of/lazuli"}
    command = [sys.executable, "-c", code]
    failed = vllm_suites._servers(command, sys.executable, options, ["--dtype", "x"], tmp_path, environment)
    assert failed
    printed = (tmp_path / "vllm.log").read_text()
    assert "'--suite', 'latency', '--prefix', 'vllm', '--', '--dtype', 'x', '--target', 'lazuli-grpc'" in printed
    assert (tmp_path / "vllm_server.log").read_text().startswith("False")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_server_that_does_not_start_fails_and_is_told(tmp_path, options, capsys):
    command = [sys.executable, "-c", "print('no memory'); raise SystemExit(3)"]
    assert vllm_suites._servers(command, sys.executable, options, [], tmp_path, dict(os.environ))
    assert "ended with 3" in capsys.readouterr().err
    assert (tmp_path / "vllm_server.log").read_text() == "no memory\n"
