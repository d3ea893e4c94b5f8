"""What the option --checkpoint means: a folder, a checkpoint that a package carries, or one of the hub.

Takes the option's text; returns what to write into a `config.pbtxt`. Does not look into the checkpoint.
"""

import os
from collections.abc import Callable
from pathlib import Path

from lazuli.checkpoint import PACKAGED_CHECKPOINTS
from lazuli.repository.errors import RepositoryError
from lazuli.repository.hub import fetch
from lazuli.repository.hub_name import HubName


def locate(text: str, check: Callable[[Path], None], show: Callable[[str], None]) -> str:
    """Find a checkpoint, fetching it if need be.

    Args:
        text: The option.
        check: Called with a folder of the small files before weights are fetched.
        show: Says what the user should know.

    Returns:
        An absolute folder, or the name of a packaged checkpoint.

    Raises:
        RepositoryError: If there is no such checkpoint.
    """
    folder = Path(text).expanduser()
    if folder.is_dir():
        # Not resolved: a link that is moved to a newer checkpoint stays a link.
        return os.path.abspath(folder)
    if text in PACKAGED_CHECKPOINTS:
        return text
    name = HubName.parse(text)
    if folder.exists() or name is None:
        packaged = ", ".join(PACKAGED_CHECKPOINTS)
        raise RepositoryError(
            f"--checkpoint {text}: not a folder, none of the packaged checkpoints ({packaged}), "
            "and not a name of the hub (org/name or org/name@revision)"
        )
    return str(fetch(name, check, show))
