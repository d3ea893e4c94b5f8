"""What the project needs to be installed, as lines for pip: the image installs that before it gets the source.

    python docker/requirements.py pyproject.toml EXTRA ...            # as pyproject.toml says it
    python docker/requirements.py --pins pyproject.toml EXTRA ...     # as it is installed here

The second has all that those need in turn, and writes `constraints.txt`. PyTorch is left out there: its version is that
of the Makefile and the Dockerfile.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

_PINNED_ELSEWHERE = "torch"


def requirements(pyproject: Path, extras: Iterable[str]) -> list[str]:
    """The requirements of the project itself and of some of its extras.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no such file, or has no such extra.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project")
    if project is None:
        raise ValueError(f"{pyproject} has no [project]")
    extras, optional = list(extras), project.get("optional-dependencies", {})
    unknown = [extra for extra in extras if extra not in optional]
    if unknown:
        raise ValueError(f"{pyproject} has no extra {unknown[0]!r}; it has {', '.join(optional) or 'none'}")
    return [*project.get("dependencies", []), *(line for extra in extras for line in optional[extra])]


def pins(lines: Iterable[str]) -> list[str]:
    """`name==version` of all packages that requirements ask for, and of what those need in turn, in order."""
    found: dict[tuple[str, tuple[str, ...]], str] = {}
    _walk(lines, (), found)
    versions = {name: version for (name, _), version in found.items() if name != _PINNED_ELSEWHERE}
    return sorted(f"{name}=={version}" for name, version in versions.items())


def _walk(lines: Iterable[str], of_extras: tuple[str, ...], found: dict[tuple[str, tuple[str, ...]], str]) -> None:
    for name, extras in _needed(lines, of_extras):
        key = name.lower().replace("_", "-"), extras
        if key not in found:
            package = distribution(name)
            found[key] = package.version
            _walk(package.requires or (), extras, found)


def _needed(lines: Iterable[str], of_extras: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names and extras of the requirements that count on this machine."""
    from packaging.requirements import Requirement

    for line in lines:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *of_extras)):
            yield requirement.name, tuple(requirement.extras)


def main(words: list[str]) -> None:
    """Print the lines that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pins", action="store_true", help="as it is installed here, with all that it needs in turn")
    parser.add_argument("pyproject", type=Path, metavar="pyproject.toml")
    parser.add_argument("extras", nargs="*", metavar="EXTRA")
    options = parser.parse_args(words)
    try:
        lines = requirements(options.pyproject, options.extras)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print("\n".join(pins(lines) if options.pins else lines))


if __name__ == "__main__":
    main(sys.argv[1:])
