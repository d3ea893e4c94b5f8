"""Fetches a checkpoint from the Hugging Face hub into its usual cache, or finds it there without a network.

Takes a name, returns a folder. Fetches what a model needs and nothing else: no pickles, no other formats. Does not
know what is in the files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lazuli.repository.errors import OutsideError, RepositoryError
from lazuli.repository.hub_name import HubName
from lazuli.repository.weight_files import how_to_convert
from lazuli.weight_files import LEGACY_PATTERNS

SMALL_FILES = ["*.json", "*.txt", "*.model"]
WEIGHTS = ["*.safetensors"]
# Copies for other programs.
_OTHERS = ["onnx/*", "openvino/*", "original/*", "gguf/*"]


def fetch(name: HubName, check: Callable[[Path], None], show: Callable[[str], None]) -> Path:
    """Bring a checkpoint into the cache, small files first.

    Args:
        name: What to fetch.
        check: Called with the folder once the small files are there; raises to spare the weights.
        show: Says what the user should know.

    Returns:
        The folder of the snapshot in the cache.

    Raises:
        RepositoryError: If the package for it is missing, or the weights are of a format that is not read.
        OutsideError: If the hub does not give it, and the cache does not have it.
    """
    hub = _import_hub()
    try:
        files = [entry.rfilename for entry in hub.HfApi().model_info(name.repository, revision=name.revision).siblings]
    except Exception as error:  # the package's own, its HTTP library's, and OSError
        return _cached(hub, name, error, show)
    _check_weights(name, files)
    show(f"fetching {name} from the hub")
    check(_download(hub, name, SMALL_FILES))
    return _download(hub, name, SMALL_FILES + WEIGHTS)


def _cached(hub: Any, name: HubName, reason: Exception, show: Callable[[str], None]) -> Path:
    """The snapshot that an earlier run has fetched."""
    try:
        folder = _snapshot(hub, name, SMALL_FILES + WEIGHTS, local_files_only=True)
    except Exception as error:
        partly = type(error).__name__ == "IncompleteSnapshotError"
        raise OutsideError(
            f"{name}: there is no such folder, the hub does not give it ({_first_line(reason)}), "
            f"and the cache has {'only a part of it' if partly else 'no copy'}",
            "check the name and the network, or pass a folder; private models need `hf auth login`",
        ) from error
    show(f"the hub does not answer ({_first_line(reason)}): taking {name} from the cache, commit {folder.name}")
    return folder


def _download(hub: Any, name: HubName, patterns: list[str]) -> Path:
    try:
        return _snapshot(hub, name, patterns)
    except Exception as error:
        raise OutsideError(
            f"{name}: the download failed: {_first_line(error)}", "run the same command again"
        ) from error


def _snapshot(hub: Any, name: HubName, patterns: list[str], **settings: Any) -> Path:
    # By the name of the branch, not by its commit: so that the cache knows it when there is no network.
    folder = hub.snapshot_download(
        name.repository, revision=name.revision, allow_patterns=patterns, ignore_patterns=_OTHERS, **settings
    )
    return Path(folder)


def _check_weights(name: HubName, files: list[str]) -> None:
    if any(Path(file).match(WEIGHTS[0]) for file in files):
        return
    legacy = next((file for file in files for pattern in LEGACY_PATTERNS if Path(file).match(pattern)), None)
    if legacy is None:
        raise RepositoryError(f"{name}: there are no safetensors on the hub")
    raise RepositoryError(
        f"{name}: its weights are in {legacy}, a pickle, which is not read", how_to_convert(name.repository)
    )


def _import_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise RepositoryError(
            "fetching from the hub needs the package huggingface_hub",
            "pip install 'lazuli[hub]', or pass a folder to --checkpoint",
        ) from None
    return huggingface_hub


def _first_line(error: Exception) -> str:
    text = str(error).strip() or repr(error)
    return text.splitlines()[0].rstrip(".")
