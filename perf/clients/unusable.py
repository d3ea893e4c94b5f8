"""A server that was named and cannot be used, told in one line."""


class UnusableError(Exception):
    """It does not answer as it should; the message says which, where and why."""


def unusable(what: str, error: Exception) -> UnusableError:
    """What to raise from an error, whose words may stand on several lines.

    Args:
        what: Says which server, and what is wrong with it.
        error: Says why.
    """
    return UnusableError(f"{what}: {' '.join(str(error).split()) or type(error).__name__}")
