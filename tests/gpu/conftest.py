"""The tests of this folder need a CUDA device; without one all of them are skipped, and say why."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "perf"))
# The plugins whose settings pyproject.toml has; a GPU machine may lack them, and an unknown setting is an error.
_SETTINGS = {
    "pytest_asyncio": ("asyncio_mode", "asyncio_default_fixture_loop_scope"),
    "pytest_timeout": ("timeout",),
}


def pytest_addoption(parser):
    for plugin, settings in _SETTINGS.items():
        if importlib.util.find_spec(plugin) is None:
            for setting in settings:
                parser.addini(setting, f"of {plugin}, which is not installed here")


def missing():
    """Why nothing of this folder can run here, or None."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    return None if torch.cuda.is_available() else "needs a CUDA device"


def pytest_collection_modifyitems(items):
    reason = missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
