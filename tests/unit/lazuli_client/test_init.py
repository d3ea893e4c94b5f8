import ast
from pathlib import Path

import lazuli_client


def test_all_is_sorted_complete_and_importable():
    assert lazuli_client.__all__ == sorted(lazuli_client.__all__)
    for name in lazuli_client.__all__:
        assert getattr(lazuli_client, name) is not None
    tree = ast.parse(Path(lazuli_client.__file__).read_text())
    imported = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(imported) == lazuli_client.__all__


def test_every_error_class_of_the_module_but_the_command_lines_is_public():
    from lazuli_client import errors

    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert classes - {"FileError"} <= set(lazuli_client.__all__)


def test_the_tree_in_the_docstring_names_every_class():
    from lazuli_client import errors

    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert name in errors.__doc__
