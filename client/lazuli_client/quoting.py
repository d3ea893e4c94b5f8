"""How bytes and words of unknown origin are shown in an error message.

Takes what was received, returns a short line of printable characters.
"""

_LIMIT = 200


def shown(received: bytes | str, limit: int = _LIMIT) -> str:
    """At most `limit` characters in one line, with escapes for what cannot be printed."""
    start = received[: 4 * limit]  # a character has at most four bytes
    text = start.decode(errors="backslashreplace") if isinstance(start, bytes) else start
    text = " ".join(text.split())
    cut = "..." if len(text) > limit or len(start) < len(received) else ""
    return "".join(map(_escaped, text[:limit])) + cut or "nothing"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
