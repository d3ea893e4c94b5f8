"""The command `lazuli verify`."""

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lazuli.launch.options import Dtype

if TYPE_CHECKING:
    from lazuli.verify.embedders import Embed
    from lazuli.verify.verdict import Limits, Verdict


class Protocol(str, Enum):  # noqa: UP042 - typer shows the values
    """How to talk to a server."""

    GRPC = "grpc"
    HTTP = "http"


@dataclass(frozen=True)
class Candidate:
    """What is to be verified.

    Attributes:
        model: A checkpoint, or with `url` the name of a served model.
        url: Of a running server; None runs the engine in process.
        protocol: For the server.
        checkpoint: Of the reference.
        device: For the engine, likewise the others.
        dtype: Arithmetic.
        attention: Backend by name.
        pooling: Instead of the checkpoint's.
    """

    model: str
    url: str | None = None
    protocol: Protocol = Protocol.GRPC
    checkpoint: str | None = None
    device: str | None = None
    dtype: Dtype | None = None
    attention: str | None = None
    pooling: str | None = None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    model: Annotated[str, typer.Argument(help="A checkpoint; with --url, the name of a served model.")],
    reference: Annotated[
        str, typer.Option(help="transformers, sentence-transformers, or a file written by --save.")
    ] = "transformers",
    url: Annotated[str | None, typer.Option(help="host:port of a running server; else the engine runs here.")] = None,
    protocol: Annotated[Protocol, typer.Option(help="Of the server.")] = Protocol.GRPC,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint of the reference; by default that of the model.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Of the engine: auto, cpu, cuda or cuda:N.")] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Arithmetic of the engine.")] = None,
    attention: Annotated[str | None, typer.Option(help="Attention backend of the engine, by name.")] = None,
    pooling: Annotated[str | None, typer.Option(help="Pooling of the engine: mean, cls or last.")] = None,
    texts: Annotated[
        Path | None, typer.Option(help="JSON file of queries and documents; else the built-in ones.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the model's vectors here, as a reference for later.")] = None,
    min_cosine: Annotated[float, typer.Option(help="Least cosine with the reference.")] = 0.999,
    min_overlap: Annotated[float, typer.Option(help="Least share of the best ten documents in common.")] = 0.95,
    max_ndcg_drop: Annotated[float, typer.Option(help="By how much NDCG@10 may be below the reference's.")] = 0.01,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare a model's vectors and rankings with a reference; exits with 1 if a limit is missed."""
    from lazuli.errors import LazuliError
    from lazuli.verify.verdict import Limits

    candidate = Candidate(model, url, protocol, checkpoint, device, dtype, attention, pooling)
    try:
        limits = Limits(min_cosine, min_overlap, max_ndcg_drop)
        verdict = run(candidate, reference, limits, texts, save)
    except LazuliError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(json.dumps(verdict.as_json()) if as_json else verdict.table())
    raise typer.Exit(0 if verdict.passed else 1)


def run(candidate: Candidate, reference: str, limits: "Limits", texts: Path | None, save: Path | None) -> "Verdict":
    """Embed the sample with both and compare.

    Raises:
        LazuliError: If one of them cannot be had.
    """
    from lazuli.verify.embedders import embed_sample, reference_vectors, save_vectors
    from lazuli.verify.sample import load_sample
    from lazuli.verify.verdict import judge

    sample = load_sample(texts)
    embed, checkpoint, prompts = _open(candidate)
    vectors = embed_sample(embed, sample, prompts)
    if save is not None:
        save_vectors(save, vectors)
    return judge(vectors, reference_vectors(reference, checkpoint, sample), sample, limits)


def _open(candidate: Candidate) -> tuple["Embed", str, list[str]]:
    """How to embed with it, the checkpoint of its reference, and the names of its prompts."""
    from lazuli.checkpoint import load_checkpoint
    from lazuli.config import EngineConfig
    from lazuli.errors import ConfigError
    from lazuli.verify.embedders import engine_embedder, server_embedder

    if candidate.url is None:
        dtype = None if candidate.dtype in (None, Dtype.AUTO) else candidate.dtype.value
        config = EngineConfig(
            checkpoint=candidate.model,
            device=candidate.device,
            dtype=dtype,
            attention=candidate.attention,
            pooling=candidate.pooling,
        )
        prompts = list(load_checkpoint(candidate.model).prompts)
        return engine_embedder(config), candidate.checkpoint or candidate.model, prompts
    if candidate.checkpoint is None:
        raise ConfigError("checkpoint: needed with --url: the reference and the prompts are read from it")
    prompts = list(load_checkpoint(candidate.checkpoint).prompts)
    embed = server_embedder(candidate.url, candidate.protocol.value, candidate.model)
    return embed, candidate.checkpoint, prompts
