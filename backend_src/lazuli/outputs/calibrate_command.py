"""The command `lazuli calibrate`: typical texts in, the ranges of int8 and uint8 vectors out.

Takes words of a command line, runs the engine in this process, writes the file that the engine reads at its next start.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lazuli.launch.options import Dtype
from lazuli.verify.candidate import Candidate

if TYPE_CHECKING:
    import numpy as np

    from lazuli.config import EngineConfig, TokenizerConfig

_BATCH = 256


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(calibrate)


def calibrate(
    model: Annotated[str, typer.Argument(help="A model of a repository, or a checkpoint.")],
    texts: Annotated[
        Path, typer.Option(help="Some thousands of typical texts: .txt (a text a line), .jsonl, .csv or .parquet.")
    ],
    column: Annotated[str, typer.Option(help="Name of the text column in .jsonl, .csv and .parquet.")] = "text",
    dimensions: Annotated[
        list[int] | None, typer.Option(min=1, help="A number of dimensions that requests cut to; may be repeated.")
    ] = None,
    prompt_name: Annotated[str | None, typer.Option(help="Prompt of the model, put before each text.")] = None,
    limit: Annotated[int, typer.Option(min=2, help="Texts at most.")] = 10_000,
    output: Annotated[
        Path | None, typer.Option(help="What to write; by default lazuli_calibration.json beside the checkpoint.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Arithmetic of the engine.")] = None,
) -> None:
    """Compute what int8 and uint8 vectors of a model need: the range of each dimension over typical texts."""
    from lazuli.errors import LazuliError
    from lazuli_client.errors import LazuliError as ClientError

    candidate = Candidate(model, device=device, dtype=dtype)
    try:
        written = run(candidate, read_texts(texts, column, limit), dimensions or [], prompt_name, output)
    except (LazuliError, ClientError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(written)


def run(
    candidate: Candidate, texts: list[str], dimensions: list[int], prompt_name: str | None, output: Path | None
) -> str:
    """Embed the texts and write the ranges; returns what to tell the caller.

    Raises:
        LazuliError: If the model, the texts or the numbers do not allow it.
    """
    from lazuli.checkpoint import load_checkpoint
    from lazuli.errors import ConfigError
    from lazuli.heads.task import check_dense, check_task
    from lazuli.outputs import calibration
    from lazuli.outputs.fingerprint import fingerprint

    engine, tokenizer = candidate.configure()
    checkpoint = load_checkpoint(engine.checkpoint)
    check_task(checkpoint, engine.task)
    check_dense(checkpoint, "lazuli calibrate")
    if checkpoint.has_quantizer:
        raise ConfigError(f"{engine.checkpoint}: the model has a quantiser of its own, which needs no ranges")
    vectors = embed(engine, tokenizer, texts, prompt_name)
    if len(texts) > 1 and len(set(texts)) == 1:
        raise ConfigError(
            f"texts: all {len(texts)} are the same, so the {vectors.shape[1]} dimensions have no ranges; "
            "give texts that differ"
        )
    made_of = fingerprint(checkpoint, engine.pooling or checkpoint.pooling)
    found = calibration.calibrate(vectors, dimensions, normalize=checkpoint.normalize, fingerprint=made_of)
    expected = Path(engine.calibration) if engine.calibration else checkpoint.path / calibration.FILE_NAME
    path = output or expected
    found.write(path)
    counts = ", ".join(map(str, found.places))
    known = "the engine reads it at its next start" if path == expected else "name it in the parameter calibration"
    flat = found.ranges[0].num_flat
    warning = (
        f"\nwarning: {flat} of {found.dimension} dimensions have the same value in all texts; give more of them, and "
        "such that differ"
    )
    return f"{path}: ranges of {counts} dimensions over {found.texts:,} texts; {known}{warning if flat else ''}"


def read_texts(path: Path, column: str, limit: int) -> list[str]:
    """The first texts of a file.

    Raises:
        FileError: If it cannot be read.
    """
    from lazuli_client.source import Source

    texts: list[str] = []
    for batch in Source(path, column).batches(_BATCH):
        texts += batch.column(0).to_pylist()
        if len(texts) >= limit:
            break
    return texts[:limit]


def embed(
    config: "EngineConfig", tokenizer_config: "TokenizerConfig", texts: list[str], prompt_name: str | None
) -> "np.ndarray":
    """Vectors of full length, not scaled, [N, D] float32; texts that are too long are cut at their end."""
    from dataclasses import replace

    import numpy as np

    from lazuli.device import choose_device
    from lazuli.engine import Engine
    from lazuli.options import RequestOptions
    from lazuli.tokenizer import TextTokenizer

    tokenizer = TextTokenizer.from_config(tokenizer_config)
    options = RequestOptions(prompt_name=prompt_name, truncate="end")
    # The file that it names may be what is to be made.
    engine = Engine(replace(config, calibration=None), choose_device(config.device, None))
    rows = [np.array(text.input_ids, dtype=np.int32) for text in tokenizer.tokenize(texts, options)]
    vectors = np.empty((len(rows), engine.dimension), dtype=np.float32)
    for batch in _cut([len(row) for row in rows], engine.token_budget):
        vectors[batch] = engine.embed_ids([rows[row] for row in batch], normalize=False)
    if not np.isfinite(vectors).all():
        from lazuli.errors import NonFiniteError

        raise NonFiniteError("the model computed NaN or Inf for one of the texts")
    return vectors


def _cut(lengths: list[int], token_budget: int) -> list[list[int]]:
    """Rows in batches of at most so many tokens, of similar lengths."""
    batches: list[list[int]] = []
    room = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if lengths[row] > room or len(batches[-1]) == _BATCH:
            batches.append([])
            room = token_budget
        batches[-1].append(row)
        room -= lengths[row]
    return batches
