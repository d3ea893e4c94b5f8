"""Runs what the pages in `perf/models` show, and writes what is answered into them.

    .venv/bin/python perf/run_model_examples.py                # all pages
    .venv/bin/python perf/run_model_examples.py bert --check   # one; fails if it says something else

Each page's models are added, by checkpoints that stand for the published ones (`checkpoints/families.py`: same widths,
random weights), then served by a real server, which each command and program of the page then asks. Vocabularies that
no installed package carries are fetched.
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from checkpoints.families import STANDS, write_model, write_token_layers, write_tokenizer
from lazuli.launch.options import ServeOptions
from lazuli.launch.running import RunningServer, running_server
from reporting.model_pages import (
    ANSWER,
    COMMAND,
    FOLDER,
    PYTHON,
    Addition,
    Block,
    lazuli_arguments,
    pages,
    read_additions,
    read_blocks,
    shorten_answer,
    with_answers,
)

_LAZULI = str(Path(sys.executable).parent / "lazuli")
_ROOT = Path(__file__).parents[1]
_LAYERS = 2


def run_page(page: Path, vocabularies: Path) -> str:
    """The text of a page with what is really answered."""
    text = page.read_text(encoding="utf-8")
    blocks = read_blocks(text)
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        for addition in read_additions(blocks):
            checkpoint = ensure_checkpoint(addition.checkpoint, Path(folder) / "checkpoints", vocabularies)
            _add(addition, checkpoint, repository)
        with running_server(ServeOptions(model_repositories=(repository,))) as server:
            return with_answers(text, [_run(block, server) for block in blocks])


def ensure_checkpoint(name: str, folder: Path, vocabularies: Path) -> str:
    """What stands for a published checkpoint; the name itself if none does."""
    if name not in STANDS:
        return name
    path = folder / name  # of both parts, for some are known by their names
    if not path.is_dir():
        model = write_model(STANDS[name], path, _LAYERS)
        write_tokenizer(STANDS[name], path, vocabularies)
        if name == "BAAI/bge-m3":
            write_token_layers(path, model.config.hidden_size)
    return str(path)


def _add(addition: Addition, checkpoint: str, repository: Path) -> None:
    arguments = [checkpoint if word == addition.checkpoint else word for word in addition.arguments]
    if "--door" not in arguments:
        arguments += ["--door", "unary"]  # nothing here streams, and it is half the memory
    done = subprocess.run(
        [_LAZULI, *arguments, "--repository", str(repository)], capture_output=True, text=True, cwd=_ROOT
    )
    if done.returncode:
        raise SystemExit(f"{shlex.join(addition.arguments)}\n{done.stderr}")


def _run(block: Block, server: RunningServer) -> str | None:
    """What a block prints; None of those that are run elsewhere."""
    text = block.text.replace("127.0.0.1:8000", server.http).replace("127.0.0.1:8001", server.grpc)
    if block.kind == ANSWER or (block.kind == COMMAND and lazuli_arguments(text)[:1] in (("model",), ("serve",))):
        return None
    if block.kind == PYTHON:
        command = [sys.executable, "-c", text]
    elif arguments := lazuli_arguments(text):
        command = [_LAZULI, *arguments, "--url", server.grpc]
    else:
        command = shlex.split(text)
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, timeout=120)
    if done.returncode:
        raise SystemExit(f"{text}\n{done.stdout}{done.stderr}")
    return shorten_answer(done.stdout)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all pages, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="without .md; by default all")
    parser.add_argument("--vocabularies", type=Path, default=Path(tempfile.gettempdir()) / "lazuli-vocabularies")
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a page says something else")
    options = parser.parse_args(arguments)
    quiet: Any = transformers_logging
    quiet.disable_progress_bar()
    wanted = [FOLDER / f"{name}.md" for name in options.pages] or pages()
    wrong = []
    for page in wanted:
        text = run_page(page, options.vocabularies)
        if text != page.read_text(encoding="utf-8"):
            wrong.append(page.name)
            if not options.check:
                page.write_text(text, encoding="utf-8")
        print(page.name, flush=True)
    if options.check and wrong:
        raise SystemExit(f"the answers in {', '.join(wrong)} are not those of the server")


if __name__ == "__main__":
    main()
