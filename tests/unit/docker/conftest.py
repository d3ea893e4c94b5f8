"""The programs of `docker/` can be imported, and those that look at files are found beside the running Python."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

DOCKER = Path(__file__).resolve().parents[3] / "docker"
sys.path.insert(0, str(DOCKER))


@pytest.fixture(scope="session")
def tool():
    """Runs a program that the extra `dev` brings; returns what it prints."""

    def run(name, *arguments):
        command = [str(Path(sys.executable).parent / name), *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.fixture(scope="session")
def read_yaml():
    """Reads a file of `docker/`."""
    return lambda name: yaml.safe_load((DOCKER / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def served_options():
    """What `lazuli serve` makes of a command line."""
    from typer.testing import CliRunner

    from lazuli import cli
    from lazuli.launch import serve as serve_module

    def parse(words):
        calls = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(serve_module, "serve", lambda options: calls.append(options) or 0)
            assert words[:2] == ["lazuli", "serve"]
            result = CliRunner().invoke(cli.app, words[1:])
        assert result.exit_code == 0, result.output
        return calls[0]

    return parse
