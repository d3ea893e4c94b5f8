"""The examples of README.md, word for word but for the addresses."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = [
    line.strip() for line in README.splitlines() if re.match(r"    (curl |\.venv/bin/lazuli (embed|search))", line)
]


def addressed(text, server):
    return text.replace("127.0.0.1:8000", server.http).replace("127.0.0.1:8001", server.grpc)


def test_there_are_examples():
    assert len(PYTHON) == 2
    assert len(SHELL) == 3


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
    """Each from the top of the checkout, with the files that they make in a folder of ours."""
    for command in SHELL:
        command = addressed(command, server).replace("/tmp/vectors", str(tmp_path / "vectors"))
        command = command.replace(".venv/bin/lazuli", str(Path(sys.executable).parent / "lazuli"))
        if "lazuli" in command:
            command += f" --url {server.grpc}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout
