"""The parameters of an added model: what is fixed, and what is left to the environment of the server.

Takes the parameters of the built-in models and the wishes of a user; returns the values to write. Does not know files.
"""

from collections.abc import Mapping
from unicodedata import category

from lazuli.parameters import expand
from lazuli.repository.errors import RepositoryError

# Matters of the machine, which `lazuli serve` and the environment decide for all models unless a model fixes them.
OF_THE_MACHINE = frozenset({"device", "dtype", "attention", "threads", "graph_capture", "cache_dir"})
# Control characters, and what stands for bytes that are no UTF-8.
_UNWRITABLE = ("Cc", "Cs")


def settle(built_in: Mapping[str, str], wishes: Mapping[str, str]) -> dict[str, str]:
    """Fix the parameters of a model.

    Those that are not asked for are as if no variable was set: `LAZULI_CHECKPOINT`, `LAZULI_MAX_SEQ_LENGTH` and the
    like are meant for the built-in model.

    Args:
        built_in: Parameters of all parts of the built-in model, with `${NAME:-default}` as they are.
        wishes: Values by name.

    Returns:
        The values to write, by name.

    Raises:
        RepositoryError: If a wish is not known, or its value cannot be written.
    """
    unknown = sorted(set(wishes) - set(built_in))
    if unknown:
        known = ", ".join(sorted(built_in))
        raise RepositoryError(f"{unknown[0]}: not a parameter of this model; known are {known}")
    for name, value in wishes.items():
        _check_value(name, value)
    own = {name: value for name, value in built_in.items() if name not in OF_THE_MACHINE}
    return {name: expand(value, {}) for name, value in own.items()} | dict(wishes)


def _check_value(name: str, value: str) -> None:
    if "${" in value:
        raise RepositoryError(f"{name}: {value!r} holds ${{, which would be read as a variable")
    bad = next(
        (character for character in value if category(character) in _UNWRITABLE and character not in "\n\t"), None
    )
    if bad is not None:
        raise RepositoryError(f"{name}: {value!r} holds the character U+{ord(bad):04X}, which cannot be written")
