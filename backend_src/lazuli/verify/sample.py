"""The texts that a comparison runs on: queries, documents, and which documents answer which query.

Takes a JSON file, returns texts. Knows nothing of models.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from lazuli.errors import ConfigError


@dataclass(frozen=True)
class Sample:
    """A small retrieval task.

    Attributes:
        queries: Q texts.
        documents: N texts.
        relevant: For each query the grade of the documents that answer it, by their number; 1 is the lowest.
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    relevant: tuple[Mapping[int, int], ...]

    def candidates(self, count: int) -> np.ndarray:
        """Documents to be scored for each query: those that answer it, and the ones that follow in the list.

        Args:
            count: How many for each query; more if more answer one, fewer if there are not so many.

        Returns:
            [Q, K] numbers of documents, ascending, so that no order tells what is relevant.
        """
        total = len(self.documents)
        most = min(total, max(count, *map(len, self.relevant)))
        rows = []
        for number, grades in enumerate(self.relevant):
            first = min(grades, default=number * total // len(self.queries))
            others = ((first + step) % total for step in range(total))
            rows.append(sorted(list(dict.fromkeys([*grades, *others]))[:most]))
        return np.array(rows)


def load_sample(path: Path | None = None) -> Sample:
    """Read a sample.

    Args:
        path: `{"documents": [text], "queries": [{"text": ..., "relevant": {"number of a document": grade}}]}`; None
            takes the built-in one, in five languages.

    Raises:
        ConfigError: If the file is missing or malformed; names the field.
    """
    where = str(path or "the built-in sample")
    source = path or Path(str(files("lazuli").joinpath("verify/data/retrieval.json")))
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: cannot be read ({error})") from None
    documents = _texts(where, "documents", _field(where, content, "documents"))
    queries = _field(where, content, "queries")
    if not isinstance(queries, list) or not all(isinstance(query, dict) for query in queries):
        raise ConfigError(f"{where}: queries must be a list of objects")
    texts = _texts(where, "queries[].text", [query.get("text") for query in queries])
    relevant = tuple(_grades(where, row, query, len(documents)) for row, query in enumerate(queries))
    return Sample(texts, documents, relevant)


def _field(where: str, content: Any, name: str) -> Any:
    if not isinstance(content, dict) or name not in content:
        raise ConfigError(f"{where}: {name} is missing")
    return content[name]


def _texts(where: str, name: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not values or not all(isinstance(value, str) and value for value in values):
        raise ConfigError(f"{where}: {name} must be texts, at least one, none of them empty")
    return tuple(values)


def _grades(where: str, row: int, query: Mapping[str, Any], num_documents: int) -> dict[int, int]:
    grades = query.get("relevant", {})
    try:
        parsed = {int(number): int(grade) for number, grade in grades.items()}
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"{where}: queries[{row}].relevant must map numbers of documents to grades") from None
    for number, grade in parsed.items():
        if not 0 <= number < num_documents or grade < 1:
            raise ConfigError(
                f"{where}: queries[{row}].relevant: document {number} with grade {grade}, but there are "
                f"{num_documents} documents, and grades begin at 1"
            )
    return parsed
