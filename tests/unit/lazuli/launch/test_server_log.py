import pytest

from lazuli.launch.options import LogLevel
from lazuli.launch.server_log import LogFilter, LogFollower, all_were_answered, failure_reason

HEAD = "1129 16:00:00.000000 7 "
LOAD = f'I{HEAD}model_lifecycle.cc:472] "loading: embed:1"'
TABLE = f"I{HEAD}server.cc:604] \n+---+\n| a |"
NOISE = f'E{HEAD}server.cc:241] "CudaDriverHelper has not been initialized."'
WARNING = f'W{HEAD}x.cc:1] "queue is full"'
TRACEBACK = f'E{HEAD}y.cc:1] "oops"\nTraceback (most recent call last):\n  File'
OURS = f'I{HEAD}model.py:5] "lazuli: running on cpu"'


def failed_load(model: str, line: int) -> str:
    message = f"failed to load '{model}' version 1: Internal: ValueError: no\\n\\nAt:\\n  m.py({line})\\n"
    return f'E{HEAD}m.cc:642] "{message}"\n'


def shown(level: LogLevel, text: str) -> list[str]:
    log_filter = LogFilter(level)
    return [line for line in text.split("\n") if log_filter.shows(line)]


def test_quiet_by_default():
    text = "\n".join([LOAD, TABLE, NOISE, WARNING, TRACEBACK, OURS, LOAD])
    assert shown(LogLevel.WARNING, text) == [WARNING, *TRACEBACK.split("\n"), OURS]


def test_lines_of_models_by_their_level():
    lines = [
        f'{{"time": "2026-11-30T04:00:00.000Z", "event": "x \\"level\\": \\"error\\"", "level": "{level}", "pid": 7}}'
        for level in ("info", "warning", "error")
    ]
    text = "\n".join([WARNING, *lines, "more of the last"])
    info, warning, error = lines
    assert shown(LogLevel.WARNING, text) == [WARNING, warning, error, "more of the last"]
    assert shown(LogLevel.ERROR, text) == [error, "more of the last"]
    assert shown(LogLevel.INFO, text) == [WARNING, info, warning, error, "more of the last"]


def test_levels():
    text = "\n".join([LOAD, WARNING, TRACEBACK])
    assert shown(LogLevel.ERROR, text) == TRACEBACK.split("\n")
    assert shown(LogLevel.INFO, text) == text.split("\n")
    assert shown(LogLevel.VERBOSE, text) == text.split("\n")


def test_following_shows_whole_lines_to_the_last(tmp_path):
    path = tmp_path / "log"
    path.write_text(WARNING + "\n")
    lines: list[str] = []
    follower = LogFollower(path, LogLevel.WARNING, lines.append)
    with path.open("a") as log:
        log.write(WARNING[:20])
        log.flush()
        log.write(WARNING[20:] + "\n")
    follower.close()
    assert lines == [WARNING, WARNING]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            failed_load("a", 8)
            + failed_load("b", 9)
            + f"I{HEAD}server.cc:604] \nerror: creating server: Internal - failed to load all models",
            "model a: ValueError: no\n\nAt:\n  m.py(8)",
        ),
        (f"{NOISE}\n{LOAD}\nerror: creating server: bad flag", "error: creating server: bad flag"),
        (
            "tritonserver: error while loading shared libraries: x.so",
            "tritonserver: error while loading shared libraries: x.so",
        ),
        ("", "it wrote nothing"),
    ],
)
def test_the_reason_of_a_failure(tmp_path, text, reason):
    path = tmp_path / "log"
    path.write_text(text)
    assert failure_reason(path) == reason


def test_a_complaint_of_ours_is_one_line(tmp_path):
    reason = "ConfigError: checkpoint: 'x' is no folder\\n\\nAt:\\n  /lib/checkpoint.py(63): resolve_checkpoint\\n"
    log = tmp_path / "server.log"
    head = "E1129 16:00:00.000000 1 model_lifecycle.cc:642]"
    log.write_text(f"{head} \"failed to load 'embedding' version 1: Internal: {reason}\"\n")
    assert failure_reason(log) == "model embedding: checkpoint: 'x' is no folder"


@pytest.mark.parametrize(
    ("counts", "answered"), [([], False), ([2, 1, 0], True), ([2, 2], False), ([0, 3], False)], ids=str
)
def test_whether_a_stopped_server_had_answered_everything(tmp_path, counts, answered):
    head = 'I1130 04:21:57.969345 29716 server.cc:321] "Timeout 0: Found'
    lines = [f'{head} {count} model versions that have in-flight inferences"' for count in counts]
    (tmp_path / "log").write_text("\n".join(["Signal (15) received.", *lines, "error: creating server"]))
    assert all_were_answered(tmp_path / "log") is answered
