"""Triton's own timestamps of single requests: where between the network and the models their time went.

Takes a server that was started with `trace_flags`; returns the intervals of each request to an ensemble of two steps,
in order of arrival. Needs Triton's trace API, which the key of the launcher opens.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import tritonclient.http as triton_http

_ON = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "-1", "log_frequency": "0"}
# Turning tracing off writes the file; a stop of the server does not.
_OFF = {"trace_level": ["OFF"]}
# The last stamps of a request come after its answer.
_SETTLE_S = 0.2


def trace_flags(file: Path) -> tuple[str, ...]:
    """What tritonserver is started with; nothing is traced yet."""
    return ("--trace-config=mode=triton", f"--trace-config=triton,file={file}")


@contextmanager
def tracing(address: str, admin_key: str) -> Iterator[None]:
    """Trace every request within; the file is written at the end.

    Args:
        address: host:port of HTTP.
        admin_key: Opens the trace API.
    """
    headers = {"admin-key": admin_key}
    client = triton_http.InferenceServerClient(address)
    try:
        client.update_trace_settings(settings=_ON, headers=headers)
        yield
        time.sleep(_SETTLE_S)
        client.update_trace_settings(settings=_OFF, headers=headers)
    finally:
        client.close()


@dataclass(frozen=True)
class Intervals:
    """Milliseconds of one request between neighbouring moments; together all that the server knew of it.

    Attributes:
        front_in: Read from the network, until the ensemble has it.
        to_tokenizer: The ensemble hands it to its first step.
        tokenizer_queue: Until an instance takes it.
        tokenizer: To the process of the model, tokenised, and back.
        to_embedding: The ensemble hands ids to its second step.
        embedding_queue: Until an instance takes it.
        embedding_accept: To the process of the model, until that has queued it in the engine.
        embedding: From then until the ensemble has the answer: the rest of the engine's work, and the reply.
        front_out: Until it is written to the network.
    """

    front_in: float
    to_tokenizer: float
    tokenizer_queue: float
    tokenizer: float
    to_embedding: float
    embedding_queue: float
    embedding_accept: float
    embedding: float
    front_out: float

    @property
    def total(self) -> float:
        """All of them."""
        return float(sum(astuple(self)))


def read_trace(
    file: Path, ensemble: str = "embed", steps: tuple[str, str] = ("tokenizer", "embedding")
) -> list[Intervals]:
    """The requests to `ensemble` in a trace file, in order of arrival."""
    requests = _read_requests(file.read_text(encoding="utf-8"))
    children: dict[int, dict[str, dict[str, int]]] = defaultdict(dict)
    for request in requests.values():
        if "parent_id" in request:
            children[request["parent_id"]][request["model_name"]] = request["ns"]
    parents = sorted(number for number, request in requests.items() if request.get("model_name") == ensemble)
    return [_intervals(requests[number]["ns"], *(children[number][step] for step in steps)) for number in parents]


def _read_requests(text: str) -> dict[int, dict[str, Any]]:
    # Triton 24.10 closes the list only when it writes another file.
    events = json.loads(text if text.rstrip().endswith("]") else f"{text}]")
    requests: dict[int, dict[str, Any]] = {}
    for event in events:
        request = requests.setdefault(event["id"], {"ns": {}})
        request |= {key: event[key] for key in ("model_name", "parent_id") if key in event}
        request["ns"] |= {stamp["name"]: stamp["ns"] for stamp in event.get("timestamps", [])}
    return requests


def _intervals(whole: dict[str, int], first: dict[str, int], second: dict[str, int]) -> Intervals:
    protocol_start = "GRPC_WAITREAD_END" if "GRPC_WAITREAD_END" in whole else "HTTP_RECV_START"
    protocol_end = "GRPC_SEND_END" if "GRPC_SEND_END" in whole else "HTTP_SEND_END"
    moments = [
        whole[protocol_start],
        whole["REQUEST_START"],
        first["REQUEST_START"],
        first["COMPUTE_START"],
        # The ensemble goes on from here; COMPUTE_END is when the tokenizer's process is free again.
        first["COMPUTE_OUTPUT_START"],
        second["REQUEST_START"],
        second["COMPUTE_START"],
        second["COMPUTE_OUTPUT_START"],
        whole["INFER_RESPONSE_COMPLETE"],
        whole[protocol_end],
    ]
    return Intervals(*((later - earlier) / 1e6 for earlier, later in pairwise(moments)))
