"""The wire contract as a client without Lazuli's library sees it: tritonclient and plain HTTP.

Each door takes texts and options and returns (embedding [N, D], token_count [N]).
"""

import json
import queue
import urllib.error
import urllib.request

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http


def text_input(module, texts):
    values = np.array([[text.encode() if isinstance(text, str) else text] for text in texts], dtype=object)
    return make_input(module, "text", values, "BYTES")


def make_input(module, name, values, datatype):
    tensor = module.InferInput(name, list(values.shape), datatype)
    tensor.set_data_from_numpy(values)
    return tensor


def grpc_infer(server, texts, model="embed", **options):
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        return _both(client.infer(model, [text_input(triton_grpc, texts)], parameters=options or None))


def http_infer(server, texts, model="embed", **options):
    with triton_http.InferenceServerClient(server.http) as client:
        return _both(client.infer(model, [text_input(triton_http, texts)], parameters=options or None))


def grpc_stream(server, texts, model="embed_stream", **options):
    """One request over a stream; its parts are put together by `index`, each row exactly once."""
    parts = stream_parts(server, [(texts, options)], model)[0]
    embedding, counts, seen = None, np.zeros(len(texts), dtype=np.int32), np.zeros(len(texts), dtype=int)
    for part in parts:
        vectors = part.as_numpy("embedding")
        index = part.as_numpy("index")
        rows = np.arange(len(texts)) if index is None else index[:, 0]
        embedding = np.empty((len(texts), vectors.shape[1]), dtype=np.float32) if embedding is None else embedding
        embedding[rows] = vectors
        counts[rows] = part.as_numpy("token_count")[:, 0]
        seen[rows] += 1
    assert (seen == 1).all()
    return embedding, counts


def stream_parts(server, requests, model="embed_stream", timeout_s=60.0):
    """Send several (texts, options) over one stream; returns the responses of each, up to its final flag."""
    answers = queue.Queue()
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number, (texts, options) in enumerate(requests):
            inputs = [text_input(triton_grpc, texts)]
            client.async_stream_infer(
                model,
                inputs,
                request_id=str(number),
                parameters=options or None,
                enable_empty_final_response=True,
            )
        parts = [[] for _ in requests]
        open_requests = set(range(len(requests)))
        while open_requests:
            result, error = answers.get(timeout=timeout_s)
            if error is not None:
                raise error
            response = result.get_response()
            if response.outputs:
                parts[int(response.id)].append(result)
            if response.parameters["triton_final_response"].bool_param:
                open_requests.remove(int(response.id))
    return parts


def http_generate(server, texts, model="embed", **options):
    return _from_json([post(server, f"/v2/models/{model}/generate", {"text": texts, **options})], len(texts))


def http_generate_stream(server, texts, model="embed_stream", **options):
    """Server-sent events: one a part. (`generate` takes no more than one part, so it is not for this model.)"""
    with _open(server, f"/v2/models/{model}/generate_stream", {"text": texts, **options}) as answer:
        lines = answer.read().decode().splitlines()
    parts = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    for part in parts:
        if "error" in part:
            raise HttpError(None, part["error"])
    return _from_json(parts, len(texts))


def _from_json(parts, count):
    """Join parts by `index`; where there is none, the one part has all rows in order."""
    index = np.concatenate([np.atleast_1d(part.get("index", np.arange(count))) for part in parts])
    assert sorted(index.tolist()) == list(range(count))
    embedding = np.concatenate(
        [np.array(part["embedding"], np.float32).reshape(np.size(part["token_count"]), -1) for part in parts]
    )
    counts = np.concatenate([np.atleast_1d(part["token_count"]) for part in parts])
    order = np.argsort(index)
    return embedding[order], counts[order]


def post(server, path, body):
    """POST JSON (or raw bytes); returns the decoded answer.

    Raises:
        HttpError: If the status is not 200.
    """
    with _open(server, path, body) as answer:
        return json.loads(answer.read())


def _open(server, path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        return urllib.request.urlopen(urllib.request.Request(f"http://{server.http}{path}", data=data), timeout=60)
    except urllib.error.HTTPError as error:
        with error:
            raise HttpError(error.code, error.read().decode()) from None


class HttpError(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


def _both(result):
    return result.as_numpy("embedding"), result.as_numpy("token_count")[:, 0]


# Every way to get text embedded: name -> door.
DOORS = {
    "grpc-infer": grpc_infer,
    "grpc-stream": grpc_stream,
    "grpc-stream-unary": lambda server, texts, **options: grpc_stream(server, texts, model="embed", **options),
    "http-infer": http_infer,
    "http-generate": http_generate,
    "http-generate-stream": http_generate_stream,
}
