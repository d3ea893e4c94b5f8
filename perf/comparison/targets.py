"""The targets of a run, opened, each with what makes its load.

Takes specs; yields `Target`s. Those that are reached over a network share one load generator; one that runs in
process has one to itself, with a single process, so that no two share threads, memory or Python's lock.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException

from clients.generator import LoadGenerator
from clients.load import Load, LoadResult
from clients.unusable import unusable
from peers.contract import Answer, Peer
from peers.registry import open_peer
from peers.spec import Settings, TargetSpec
from texts.rows import Rows, RowSpec

_MANY = 1_000_000


@dataclass(frozen=True)
class Target:
    """A system and what loads it.

    Attributes:
        name: Its own in this run.
        peer: The system.
        generator: Makes its load.
        ready_s: From its start until it was ready; of one that was running, until it answered.
    """

    name: str
    peer: Peer
    generator: LoadGenerator
    ready_s: float

    def run(self, load: Load) -> LoadResult:
        """Make a load."""
        return self.generator.run(load)

    def ask(self, rows: Rows) -> Answer:
        """One request, from where the load comes from.

        Raises:
            UnusableError: If a server does not answer it with vectors.
        """
        try:
            return self.generator.ask(self.peer.endpoint, rows)
        except RuntimeError as error:
            if self.peer.in_process:
                raise
            raise unusable(f"target {self.name} cannot be used", error) from error

    def wait_until_ready(self) -> None:
        """Connect once; what runs in process is loaded by that."""
        self.run(Load(self.peer.endpoint, None, rounds=1))

    @property
    def pid(self) -> int | None:
        """The process that computes, where we started it."""
        return self.generator.pid if self.peer.in_process else self.peer.pid


@dataclass(frozen=True)
class Workshop:
    """What targets are opened with.

    Attributes:
        settings: Shared by all targets.
        rows: What requests carry.
        processes: Of the load generator that servers share.
    """

    settings: Settings
    rows: RowSpec
    processes: int

    @contextlib.contextmanager
    def open(self, specs: Sequence[TargetSpec]) -> Iterator[list[Target]]:
        """All targets, each ready.

        Raises:
            ValueError: If one cannot be as it was asked for, or two have the same name.
            UnusableError: If the server of one that has an address does not answer.
        """
        settings = replace(self.settings, streams=any(spec.kind == "lazuli-stream" for spec in specs))
        with contextlib.ExitStack() as stack:
            targets: list[Target] = []
            shared: LoadGenerator | None = None
            for spec in specs:
                began = time.perf_counter()
                with _naming(spec):
                    peer = stack.enter_context(open_peer(spec, settings))
                ready_s = time.perf_counter() - began
                if not peer.in_process and shared is None:
                    shared = stack.enter_context(LoadGenerator(self.rows, self.processes))
                generator = shared
                if peer.in_process or generator is None:
                    generator = stack.enter_context(LoadGenerator(self.rows, 1, _MANY, may_fork=True))
                name = spec.options.get("label") or _name(peer)
                if name in (target.name for target in targets):
                    raise ValueError(f"two targets are called {name!r}; tell them apart with label=")
                targets.append(Target(name, peer, generator, ready_s))
                with _naming(spec):
                    targets[-1].wait_until_ready()
                if peer.in_process:  # the start of its load's process is its own
                    targets[-1] = replace(targets[-1], ready_s=time.perf_counter() - began)
            yield targets


@contextlib.contextmanager
def _naming(spec: TargetSpec) -> Iterator[None]:
    """Say of which server an error is; what runs in process has none, and fails as it does.

    Raises:
        UnusableError: In place of what a server's silence, or its answer, leads to.
    """
    try:
        yield
    except (OSError, RuntimeError, HTTPException) as error:
        if spec.address is None:
            raise
        name = spec.options.get("label") or spec.kind
        raise unusable(f"target {name} at {spec.address} cannot be used", error) from error


def _name(peer: Peer) -> str:
    return " ".join(filter(None, [peer.system, peer.protocol or "engine", peer.dtype]))
