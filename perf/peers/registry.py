"""All kinds of targets by name; the module of a kind is imported when it is asked for.

Takes a `TargetSpec`; returns what opens it. Each module has `open_peer(spec, settings)`, a context manager of a `Peer`.
"""

import importlib
from contextlib import AbstractContextManager
from dataclasses import dataclass

from peers.contract import Peer
from peers.spec import Settings, TargetSpec


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes:
        module: In this package.
        help: For the command line.
    """

    module: str
    help: str


KINDS = {
    "lazuli-grpc": Kind("lazuli_server", "unary gRPC; without an address a server is started"),
    "lazuli-http": Kind("lazuli_server", "binary HTTP; without an address a server is started"),
    "lazuli-stream": Kind("lazuli_server", "gRPC stream, answers in parts; without an address a server is started"),
    "lazuli-engine": Kind("lazuli_engine", "tokenizer, scheduler and engine in process"),
    "vllm": Kind("vllm_server", "vLLM's server by URL, or started with command="),
    "vllm-engine": Kind("vllm_engine", "vLLM's engine in process"),
    "tei": Kind("tei", "text-embeddings-inference by URL, or started with command=; route=native or openai"),
    "infinity": Kind("infinity", "infinity by URL, or started with command="),
    "openai": Kind("openai_style", "anything that answers POST URL/embeddings, model= says what it calls its model"),
    "sentence-transformers": Kind("sentence_transformer", "in process"),
    "onnxruntime": Kind("onnx_runtime", "in process, of a model that torch exports once"),
}


def open_peer(spec: TargetSpec, settings: Settings) -> AbstractContextManager[Peer]:
    """What opens a target.

    Raises:
        ValueError: If there is no such kind, or it cannot be as it was asked for.
    """
    if spec.kind not in KINDS:
        raise ValueError(f"no kind of target is called {spec.kind!r}; there are {', '.join(KINDS)}")
    module = importlib.import_module(f"peers.{KINDS[spec.kind].module}")
    opened: AbstractContextManager[Peer] = module.open_peer(spec, settings)
    return opened


def describe_kinds() -> str:
    """A line each."""
    return "\n".join(f"  {name:22} {kind.help}" for name, kind in KINDS.items())
