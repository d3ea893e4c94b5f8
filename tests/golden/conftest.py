"""Shows how close the golden tests came: a test that passes says nothing of its margin."""

import pytest

_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def show(request):
    """Keep a line for the summary at the end of the run, and in the report of the test."""

    def show(text):
        request.config.stash.setdefault(_FIGURES, []).append(f"{request.node.name}: {text}")
        request.node.user_properties.append(("figures", text))

    return show


def pytest_terminal_summary(terminalreporter, config):
    lines = config.stash.get(_FIGURES, [])
    if lines:
        terminalreporter.section("golden figures")
        for line in lines:
            terminalreporter.write_line(line)
