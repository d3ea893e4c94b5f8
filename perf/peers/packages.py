"""Packages that a target needs and that may not be here."""

from importlib.metadata import PackageNotFoundError, version


def installed_version(package: str, needs: str = "") -> str:
    """The version of a package.

    Args:
        package: Its name.
        needs: What else is to be installed with it.

    Raises:
        ValueError: If it is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        raise ValueError(f"{package} is not installed here: pip install {package} {needs}".rstrip()) from None
