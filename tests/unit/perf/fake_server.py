"""A server with the routes of vLLM, TEI, infinity and OpenAI: the vector of a text follows from its words."""

import base64
import json
import sys
import threading
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

DIMENSION = 8


def vector(text, shift=0.0):
    return np.random.default_rng(zlib.crc32(str(text).encode())).standard_normal(DIMENSION).astype(np.float32) + shift


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        answers = {
            "/health": {},
            "/v2/health/live": {},
            "/version": {"version": "0.22.0"},
            "/v1/models": {"data": [{"id": "a model"}]},
            "/models": {"data": [{"id": "a model"}]},
            "/info": {"model_id": "a model", "version": "1.9", "model_dtype": "float16"},
            "/openapi.json": {"info": {"version": "0.0.78"}},
        }
        self.answer(answers.get(self.path))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        if self.server.speech is not None:
            self.answer_bytes(self.server.speech, {})
            return
        texts = body["inputs"] if self.path == "/embed" else body["input"]
        rows = [vector(text, self.server.shift) for text in texts]
        # Words of MiniLM's vocabulary, [CLS] and [SEP].
        tokens = sum(len(text.split()) + 2 if isinstance(text, str) else len(text) for text in texts) - self.server.lost
        if self.path == "/embed":
            self.answer([row.tolist() for row in rows], {"x-compute-tokens": str(tokens)})
            return
        form = body.get("encoding_format", "float")
        data = [
            {"index": place, "embedding": base64.b64encode(row).decode() if form == "base64" else row.tolist()}
            for place, row in enumerate(rows)
        ]
        # In another order than the texts, as nothing forbids.
        self.answer({"data": data[::-1], "usage": {"prompt_tokens": tokens}})

    def answer(self, content, headers=None):
        self.answer_bytes(json.dumps(content).encode(), headers, 404 if content is None else 200)

    def answer_bytes(self, body, headers, status=200):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True
    shift, lost, speech = 0.0, 0, None


@contextmanager
def fake_server(port=0):
    with Server(("127.0.0.1", port), Handler) as server:
        server.bodies = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    with fake_server(int(sys.argv[1])):
        threading.Event().wait()
