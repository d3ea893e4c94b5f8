"""The examples of the documents, word for word but for the addresses."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from .serving import LAZULI, Serving

ROOT = Path(__file__).parents[2]
README = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "model_repository/README.md"))
MODELS, PAIRS = (README.split(f"## {title}\n")[1].split("\n## ")[0] for title in ("Several models", "Scores of pairs"))
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMAND = re.compile(r"    ((?:curl |\.venv/bin/lazuli (?:embed|search|rerank|model|serve|verify)).*)")
SHELL = COMMAND.findall(README.replace(MODELS, "").replace(PAIRS, ""))


def addressed(text, server):
    return text.replace("127.0.0.1:8000", server.http).replace("127.0.0.1:8001", server.grpc)


def run_shell(command, server, folder):
    """From the top of the checkout, with the files that it makes in a folder of ours."""
    command = addressed(command, server).replace("/tmp/vectors", str(folder / "vectors"))
    if re.search("lazuli (embed|search|rerank)", command):
        command += f" --url {server.grpc}"
    command = command.replace(".venv/bin/lazuli", LAZULI)
    return subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT, timeout=120)


def test_there_are_examples():
    assert len(PYTHON) == 2
    assert len(SHELL) == 5


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python(server, number):
    done = subprocess.run(
        [sys.executable, "-c", addressed(PYTHON[number], server)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    # What a comment behind print says is what is printed.
    claimed = [claim.strip() for claim in re.findall(r"print\(.*\)  # (\(.*\])$", PYTHON[number], re.MULTILINE)]
    assert [claim for claim in claimed if claim not in done.stdout] == []


def test_shell_in_their_order(server, tmp_path):
    for command in SHELL:
        done = run_shell(command, server, tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout


@contextmanager
def served():
    """Run commands one after the other; what `lazuli serve` starts serves until the end. Yields what runs one."""
    serving = None

    def run_next(command, folder):
        nonlocal serving
        if command == ".venv/bin/lazuli serve":
            serving = Serving()
            return serving.banner()
        http, grpc, _ = [f"127.0.0.1:{port}" for port in serving.ports] if serving else ["", "", ""]
        done = run_shell(command, SimpleNamespace(http=http, grpc=grpc), folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout
        return done.stdout

    try:
        yield run_next
        assert serving.interrupt() == 0
    finally:
        if serving:
            serving.end()


def test_several_models_in_their_order(tmp_path):
    commands = COMMAND.findall(MODELS)
    assert len(commands) == 7
    with served() as run_next:
        for command in commands:
            shown = run_next(command, tmp_path)
            if command.endswith(" serve"):
                assert "serves embed, " in shown
                assert "short.tokenizer" in shown
            if " list" in command:
                line = r"^short +embed +BertModel +dense +384 +64 +mean +auto +all-MiniLM-L6-v2 +complete"
                assert re.search(line, shown, re.M)
            if command.startswith("curl"):
                assert len(json.loads(shown)["embedding"]) == 384


def test_scores_of_pairs_in_their_order(tmp_path):
    commands = COMMAND.findall(PAIRS)
    assert len(commands) == 5
    with served() as run_next:
        for command in commands:
            shown = run_next(command, tmp_path)
            if command.endswith(" serve"):
                assert "rerank.reranking" in shown
            if "lazuli rerank" in command:
                assert len(shown.splitlines()) == 4
            if command.startswith("curl"):
                assert 0.4 < json.loads(shown)["score"] <= 1
