"""Stands in for tritonserver: answers over HTTP like one model with a text input; misbehaves as FAKE says.

FAKE is a comma-separated list of: die (fail to load a model), deaf (ignore SIGTERM), child (leave a process
that ignores SIGTERM too), hang (never answer an inference), crash (die after the first inference), crash_at_stop, stuck
(never get ready), abort (while it loads, as often as the file FAKE_ABORTS has lines).
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FAKE = set(os.environ.get("FAKE", "").split(","))
OPTIONS = dict(flag.removeprefix("--").split("=", 1) for flag in sys.argv[1:] if "=" in flag)
CONFIG = {
    "name": "echo",
    "max_batch_size": 8,
    "input": [{"name": "text", "data_type": "TYPE_STRING", "dims": [1]}],
}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path
        if path.endswith("/config"):
            self.answer(CONFIG)
        elif path.endswith("/stats"):
            self.answer({"model_stats": [{"inference_stats": {"success": {"count": 0}}}]})
        else:
            self.answer({"version": "fake"})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/index"):
            self.answer([{"name": "echo"}])
            return
        if "hang" in FAKE:
            time.sleep(1000)
        self.answer({"outputs": [{"name": "x", "datatype": "FP32", "data": [0.5]}]})
        if "crash" in FAKE:
            os._exit(3)

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def stop(*_):
    """As the real one ends, or fails to."""
    if "crash_at_stop" in FAKE:
        os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(0)


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in FAKE else stop)
    prefix = next((flag.rsplit("=", 1)[1] for flag in sys.argv if "shm-region-prefix-name" in flag), None)
    if prefix and os.environ.get("FAKE_SHM"):
        Path(os.environ["FAKE_SHM"], f"{prefix}region").touch()
    if "child" in FAKE:
        subprocess.Popen(["sh", "-c", "trap '' TERM; echo child $$; while :; do sleep 1; done"])
    if "die" in FAKE:
        print(
            "E1129 16:00:00.000000 7 model_lifecycle.cc:642] \"failed to load 'echo' version 1: "
            'Internal: ValueError: no such checkpoint\\n\\nAt:\\n  model.py(8): initialize\\n"',
            flush=True,
        )
        sys.exit(1)
    if "stuck" in FAKE:
        time.sleep(1000)
    if "abort" in FAKE:
        left = Path(os.environ["FAKE_ABORTS"]).read_text().splitlines()
        Path(os.environ["FAKE_ABORTS"]).write_text("\n".join(left[1:]))
        if left:
            os.abort()
    ThreadingHTTPServer(("127.0.0.1", int(OPTIONS["http-port"])), Handler).serve_forever()


main()
