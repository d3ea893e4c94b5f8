"""Tokenizer libraries against Hugging Face's: whether they give the same ids, how fast, and what they remember.

    .venv/bin/python -m pip install --target /tmp/candidates --no-deps fastokens==0.3.5 tokie==0.1.4 \
        splintr-rs==0.22.0 gigatoken==0.10.0 snaptokens==0.2.6 morpheme==0.5.0 budtiktok==0.1.0 iree-tokenizer==0.3.0
    PYTHONPATH=/tmp/candidates .venv/bin/python perf/bench_tokenizers.py --machine cpu-2core

Takes the candidates that are installed and three real vocabularies. Equality is counted over a million hard texts,
special tokens left out. Speed is of texts that no one has seen before, turn and turn about. `memory` is the time of a
text of new words against that of a text of words seen before: above 1, it tells what others have sent. `lazuli` is what
the server uses: a library, and the reference where that is in doubt.
"""

import argparse
import gc
import importlib
import itertools
import json
import os
import pydoc_data.topics
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tokenizers

from lazuli.reference_encoder import load_reference
from lazuli.text_encoders import choose_encoder
from lazuli.tokenizer_definition import Definition, text_only
from reporting.measurement import Measurement, write
from texts.hard import hard_texts
from texts.vocabularies import vocabularies

Encode = Callable[[Sequence[str]], list[list[int]]]
# Name in tables -> module, and what makes an encoder of a tokenizer.json.
_CANDIDATES: dict[str, tuple[str, Callable[[Any, str], Encode]]] = {
    "kitoken": ("kitoken", lambda module, path: module.Kitoken.from_tokenizers_file(path).encode_all),
    "nanotoken": ("nanotoken", lambda module, path: _nanotoken(module, path)),
    "fastokens": ("fastokens", lambda module, path: _ids_of(module.Tokenizer.from_file(path).encode_batch, False)),
    "tokie": ("tokie", lambda module, path: _one_by_one(module.Tokenizer.from_json(path).encode, False)),
    "splintr-rs": ("splintr", lambda module, path: _lists(module.from_json(path).encode)),
    "gigatoken": ("gigatoken", lambda module, path: _lists(module.Tokenizer(path).encode)),
    "snaptokens": ("snaptokens", lambda module, path: _ids_of(module.Tokenizer.from_file(path).encode_batch, False)),
    "morpheme": ("morpheme", lambda module, path: _ids_of(module.Tokenizer.from_file(path).encode_batch, False)),
    "budtiktok": ("budtiktok", lambda module, path: _one_by_one(module.Tokenizer.from_file(path).encode, False)),
    "iree-tokenizer": ("iree.tokenizer", lambda module, path: _lists(_iree(module, path))),
}
# Tokens of a text -> (English words of such a text, texts a round).
_LENGTHS = {16: (11, 40), 512: (380, 4), 8192: (6100, 1)}
_BATCH, _BATCH_TOKENS, _BATCH_WORDS = 100, 128, 95
_PARTS = 8


def _ids_of(encode: Callable[..., Any], *options: object) -> Encode:
    return lambda texts: [encoding.ids for encoding in encode(list(texts), *options)]


def _one_by_one(encode: Callable[..., Any], *options: object) -> Encode:
    return lambda texts: [encode(text, *options).ids for text in texts]


def _lists(encode: Callable[[str], Any]) -> Encode:
    return lambda texts: [list(encode(text)) for text in texts]


def _iree(module: Any, path: str) -> Callable[[str], Any]:
    tokenizer = module.Tokenizer.from_file(path)
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def _nanotoken(module: Any, path: str) -> Encode:
    module.set_cache_entries(0)
    tokenizer = module.WordPieceTokenizer.from_json(Path(path).read_bytes())
    return lambda texts: tokenizer.encode_batch_list(texts, add_special_tokens=False, parallel=False)


def load_systems(definition: Definition, folder: Path) -> dict[str, Encode]:
    """The reference as it comes, ours, and each candidate that is installed and takes this vocabulary."""
    as_it_comes = load_reference(definition)
    as_it_comes.no_padding()
    as_it_comes.no_truncation()
    as_it_comes.encode_special_tokens = True
    systems = {f"tokenizers {version('tokenizers')}": _ids_of(_without_special(as_it_comes))}
    ours = choose_encoder(None, definition, load_reference(definition))
    package = "tokenizers" if ours.name == "huggingface" else ours.name
    systems[f"lazuli: {package} {version(package)}"] = ours.encode
    if ours.name == "huggingface":
        asked = choose_encoder("kitoken", definition, load_reference(definition))
        systems[f"lazuli: {asked.name} {version(asked.name)}, if asked for"] = asked.encode
    path = folder / "text_only.json"
    path.write_text(json.dumps(text_only(definition)), encoding="utf-8")
    for name, (module, make) in _CANDIDATES.items():
        try:
            encode = make(importlib.import_module(module), str(path))
            encode(["a first text"])
        except Exception as error:
            print(f"  {name}: {ascii(error)[:160]}", flush=True)
            continue
        systems[f"{name} {version(name)}"] = encode
    return systems


def _without_special(tokenizer: tokenizers.Tokenizer) -> Callable[[list[str]], Any]:
    return lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def differences(encode: Encode, expected: list[list[int]], texts: Sequence[str]) -> list[int]:
    """Which texts differ; one that a candidate cannot encode does."""
    try:
        return [row for row, (ids, right) in enumerate(zip(encode(texts), expected, strict=True)) if ids != right]
    except Exception:
        if len(texts) == 1:
            return [0]
        half = len(texts) // 2
        behind = differences(encode, expected[half:], texts[half:])
        return differences(encode, expected[:half], texts[:half]) + [half + row for row in behind]


def count_differences(systems: dict[str, Encode], texts: dict[str, list[str]]) -> dict[str, dict[str, tuple[int, str]]]:
    """For each system and kind of text on which it differs from the first: how often, and the shortest example."""
    (_, reference), *others = systems.items()
    found: dict[str, dict[str, tuple[int, str]]] = {name: {} for name in systems}
    for kind, members in texts.items():
        for start in range(0, len(members), 20_000):
            part = members[start : start + 20_000]
            expected = reference(part)
            for name, encode in others:
                wrong = [part[row] for row in differences(encode, expected, part)]
                if wrong:
                    count, example = found[name].get(kind, (0, wrong[0]))
                    found[name][kind] = count + len(wrong), min([example, *wrong], key=len)
    return found


class FreshText:
    """English prose without end; no piece comes twice before all have come."""

    def __init__(self) -> None:
        """Read the reference of the Python language, which every Python carries."""
        topics = pydoc_data.topics.topics
        self._words = itertools.cycle(" ".join(topics[name] for name in sorted(topics)).split())

    def texts(self, count: int, words: int) -> list[str]:
        """So many texts of so many words."""
        return [" ".join(itertools.islice(self._words, words)) for _ in range(count)]


def measure_speed(systems: dict[str, Encode], rounds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Time of each system for each kind of work, as fields of a measurement."""
    source = FreshText()
    work = [(length, 1, 1, words, count) for length, (words, count) in _LENGTHS.items()]
    work += [(_BATCH_TOKENS, _BATCH, threads, _BATCH_WORDS, 1) for threads in (1, 2)]
    for length, batch, threads, words, count in work:
        samples: dict[str, list[float]] = {name: [] for name in systems}
        tokens: dict[str, list[int]] = {name: [] for name in systems}
        for _ in range(rounds):
            for name in random.sample(list(systems), len(systems)):
                texts = source.texts(count * batch, words)
                elapsed, ids = _time(systems[name], texts, threads if batch > 1 else 0)
                samples[name].append(elapsed / count * 1e3)
                tokens[name].append(ids // count)
        for name in systems:
            mean = sum(tokens[name]) // rounds
            fields = {"samples_ms": samples[name], "len": length, "batch": batch, "texts": batch, "tokens": mean}
            yield name, fields | {"concurrency": threads}


def _time(encode: Encode, texts: list[str], threads: int) -> tuple[float, int]:
    """Seconds and ids; without threads, text by text."""
    parts = [[text] for text in texts] if threads == 0 else [texts[part::_PARTS] for part in range(_PARTS)]
    gc.disable()
    try:
        if threads < 2:
            start = time.perf_counter()
            results = [encode(part) for part in parts]
            return time.perf_counter() - start, sum(len(ids) for rows in results for ids in rows)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(encode, [["wake up"]] * threads))
            start = time.perf_counter()
            results = list(pool.map(encode, parts))
            return time.perf_counter() - start, sum(len(ids) for rows in results for ids in rows)
    finally:
        gc.enable()


def measure_memory(encode: Encode, rounds: int) -> float:
    """Time of a text of new words over that of one of words seen before, medians."""
    rng = random.Random(0)

    def new_words() -> list[str]:
        return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2000)]

    known = new_words()
    encode([" ".join(known)])
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for new in (True, False):
            rng.shuffle(known)
            text = " ".join(new_words() if new else known)
            times[new].append(_time(encode, [text], 0)[0])
    return sorted(times[True])[rounds // 2] / sorted(times[False])[rounds // 2]


def bench(name: str, definition: Definition, folder: Path, *, rounds: int, small: bool) -> list[Measurement]:
    """All measurements of one vocabulary."""
    print(name, flush=True)
    systems = load_systems(definition, folder)
    measured = list(measure_speed(systems, rounds))
    memory = {system: measure_memory(encode, 3 * rounds) for system, encode in systems.items()}
    # Last, as it fills what the libraries remember with odd words.
    texts = hard_texts([token["content"] for token in definition["added_tokens"]][:40], small=small)
    found = count_differences(systems, texts)
    total = sum(map(len, texts.values()))
    differ = {system: sum(count for count, _ in kinds.values()) for system, kinds in found.items()}
    for system, kinds in found.items():
        print(f"  {system}: {differ[system]} of {total} differ, memory {memory[system]:.2f}", flush=True)
        for kind, (count, example) in kinds.items():
            print(f"    {kind}: {count}, such as {example[:60]!a}", flush=True)
    lines = []
    for system, fields in measured:
        extra = {"compared": total, "differ": differ[system], "memory": memory[system]}
        lines.append(Measurement(system, "tokenizer", name, name, "any", **fields, extra=extra))
        print("  " + lines[-1].summary(), flush=True)
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="folder under perf/results")
    parser.add_argument("--vocabularies", type=Path, default=Path.home() / ".cache/lazuli/vocabularies")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--small", action="store_true", help="compare on a sample of the texts")
    options = parser.parse_args(arguments)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    random.seed(0)
    lines = []
    for name, load in vocabularies(options.vocabularies).items():
        lines += bench(name, load(), options.vocabularies, rounds=options.rounds, small=options.small)
    print(write(options.machine, "tokenizers", lines))


if __name__ == "__main__":
    main()
