"""What happens to the server, as lines for programs: one event, one line of JSON.

Takes a name and fields; returns a line. Fields hold no texts of requests.
"""

import json
from datetime import UTC, datetime


def event_line(event: str, **fields: object) -> str:
    """One line.

    Args:
        event: What happened.
        fields: More about it, with their units in their names; floats are rounded to milliseconds.

    Returns:
        A JSON object that begins with `time` (UTC) and `event`.
    """
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}
    return json.dumps({"time": time, "event": event, **rounded}, ensure_ascii=False)
