import json
from datetime import UTC, datetime, timedelta

from lazuli.launch.event_line import event_line


def test_one_line_with_the_time_first():
    line = event_line("restart", reason='two\nlines and a "quote"', pause_s=1.23456, number=2)
    assert "\n" not in line
    fields = json.loads(line)
    assert list(fields) == ["time", "event", "reason", "pause_s", "number"]
    assert fields["reason"] == 'two\nlines and a "quote"'
    assert fields["pause_s"] == 1.235
    assert abs(datetime.now(UTC) - datetime.fromisoformat(fields["time"])) < timedelta(minutes=1)
