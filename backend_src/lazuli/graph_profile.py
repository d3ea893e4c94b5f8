"""What a deployment asked of its graphs, kept on disk for its next start.

Takes and returns a `GraphProfile`. The file is a help and never a condition: one that is missing, broken or cannot be
written costs a log line. Knows nothing of CUDA.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lazuli.buckets import Bucket

_log = logging.getLogger(__name__)
_FORMAT = 1
_MOST_BUCKETS = 1000


@dataclass
class GraphProfile:
    """What is remembered.

    Attributes:
        inflection: Token count from which on eager runs are as quick as graphs, or None if it was not measured.
        hits: How many batches each bucket had.
    """

    inflection: int | None = None
    hits: dict[Bucket, int] = field(default_factory=dict)

    def most_used(self) -> list[Bucket]:
        """The buckets by falling number of hits."""
        return sorted(self.hits, key=lambda bucket: (-self.hits[bucket], bucket.num_tokens, bucket.num_sequences))


class ProfileFile:
    """One file, of one checkpoint on one kind of GPU."""

    def __init__(self, folder: Path, name: str, identity: Mapping[str, Any]) -> None:
        """Name the file.

        Args:
            folder: Of the cache; need not exist.
            name: For people; the first part of the file's name.
            identity: All that makes a profile useless if it changes; JSON values.
        """
        text = json.dumps(identity, sort_keys=True, default=str)
        self._identity = hashlib.sha256(text.encode()).hexdigest()
        readable = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in name)[:60]
        self.path = folder / "graphs" / f"{readable}-{self._identity[:12]}.json"

    def load(self) -> GraphProfile:
        """Read the profile; an empty one if there is none that can be used."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT or content["identity"] != self._identity:
                raise ValueError("it is of another format or for something else")
            return _read(content)
        except FileNotFoundError:
            _log.info("graphs: no profile of an earlier run at %s", self.path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("graphs: the profile %s is not used: %s", self.path, error)
        return GraphProfile()

    def save(self, profile: GraphProfile) -> bool:
        """Write the profile in one piece; False, with a log line, if that is not possible."""
        hits = [
            [bucket.num_tokens, bucket.num_sequences, bucket.max_seqlen, profile.hits[bucket]]
            for bucket in profile.most_used()[:_MOST_BUCKETS]
        ]
        content = {
            "format": _FORMAT,
            "identity": self._identity,
            "inflection": profile.inflection,
            "buckets": hits,
        }
        # Two engines may write at a time: each into a file of its own, and the last one stays.
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content), encoding="utf-8")
            temporary.replace(self.path)
        except OSError as error:
            _log.warning("graphs: the profile %s cannot be written: %s", self.path, error)
            return False
        return True


def _read(content: Mapping[str, Any]) -> GraphProfile:
    inflection = content["inflection"]
    if inflection is not None and (type(inflection) is not int or inflection < 1):
        raise ValueError("inflection is not a number of tokens")
    hits = {}
    for row in content["buckets"][:_MOST_BUCKETS]:
        tokens, sequences, longest, count = row
        if any(type(value) is not int or value < 1 for value in row):
            raise ValueError("a bucket is not of four positive numbers")
        hits[Bucket(tokens, sequences, longest)] = count
    return GraphProfile(inflection, hits)
