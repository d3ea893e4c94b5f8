"""vLLM's engine in process: its asynchronous front, which batches the requests of all clients.

Takes rows; each text is a request of its own to the engine, as its server has it. Written against vLLM 0.22.
"""

import asyncio
import contextlib
import importlib
import itertools
import os
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from peers.contract import Answer, Peer
from peers.local import LocalEndpoint
from peers.packages import installed_version
from peers.spec import Settings, TargetSpec
from peers.vllm_checkpoint import vllm_checkpoint
from texts.rows import Rows


@contextlib.contextmanager
def open_peer(spec: TargetSpec, settings: Settings) -> Iterator[Peer]:
    """A target of this kind; options: `dtype`, `memory` (share of the GPU's, 0.4 unless set)."""
    spec.check_options("dtype", "memory")
    dtype = spec.options.get("dtype", settings.dtype or "auto")
    arguments = (settings.checkpoint, dtype, settings.max_seq_length, float(spec.options.get("memory", "0.4")))
    endpoint = LocalEndpoint(VllmEngine, arguments)
    yield Peer(f"vllm {installed_version('vllm')}", endpoint, None, dtype, in_process=True, takes_ids=True)


class VllmEngine:
    """An event loop in a thread, and the engine on it."""

    def __init__(self, checkpoint: str, dtype: str, max_seq_length: int | None, memory: float) -> None:
        """Load it."""
        from lazuli.checkpoint import load_checkpoint

        found = load_checkpoint(checkpoint)
        _forget_python_path()
        # Its own processes: this one has threads already, which a fork would not survive.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        vllm: Any = importlib.import_module("vllm")
        engine: Any = importlib.import_module("vllm.v1.engine.async_llm").AsyncLLM
        arguments = vllm.AsyncEngineArgs(
            model=str(vllm_checkpoint(found)),
            runner="pooling",
            convert="embed",
            dtype=dtype,
            max_model_len=max_seq_length or found.max_seq_length,
            gpu_memory_utilization=memory,
        )
        self._parameters = vllm.PoolingParams(task="embed")
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm")
        self._thread.start()

        async def make() -> Any:
            return engine.from_engine_args(arguments)

        self._engine = self._wait(make())

    def embed(self, rows: Rows) -> Answer:
        """All texts at once."""
        prompts: list[Any] = list(rows.texts)
        if rows.ids is not None:
            prompts = [{"prompt_token_ids": ids.tolist()} for ids in rows.ids]
        outputs = self._wait(self._gather(prompts))
        vectors = np.stack([output.outputs.data.float().cpu().numpy() for output in outputs])
        return Answer(vectors, sum(len(output.prompt_token_ids) for output in outputs))

    def close(self) -> None:
        """End the engine's processes and the loop."""
        self._engine.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _gather(self, prompts: list[Any]) -> list[Any]:
        return list(await asyncio.gather(*map(self._encode, prompts)))

    async def _encode(self, prompt: Any) -> Any:
        result = None
        async for output in self._engine.encode(prompt, self._parameters, str(next(self._numbers))):
            result = output
        return result

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _forget_python_path() -> None:
    """What is put before all packages for Lazuli's sake is not for vLLM, nor for the processes that it starts."""
    folders = set(os.environ.pop("PYTHONPATH", "").split(os.pathsep)) - {str(Path(__file__).parents[1])}
    sys.path[:] = [folder for folder in sys.path if folder not in folders]
