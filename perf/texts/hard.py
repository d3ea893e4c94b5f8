"""Texts on which tokenizers are apt to differ, by kind: all of Unicode, odd white space, long words, special tokens.

Takes a seed and the special tokens of a vocabulary, returns strings; the same arguments give the same texts. Knows
nothing of tokenizers. `small` draws a sample that is quick enough for a test.
"""

import base64
import itertools
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np

# The planes with characters in them; the others are wholly unassigned.
_PLANES = (0, 1, 2, 3, 14)
_SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + "\u180e\u200b\u200c\u200d\u2060\ufeff"
_CONTROLS = "".join(chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0xAD, *range(0x200B, 0x2010)))
_MARKS = "\u0301\u0323\u0308\u0327\u0345\u05b0\u064b\u0e34\u3099\u0338\u20dd\u1dc4"
_BASES = "aeiouAnEIsßıİΣςאבيकกかハ가ᄀ\u1161각ΩÅé\u0344"
_EMOJI = "👩👨👧❤️🏳️🏴🎉👍☝✌🧑🏽🏿\U0001f1e9\U0001f1ea\u20e3#1♂⚕️"
_JOINERS = ("", "\u200d", "\ufe0f", "\ufe0e", "\U0001f3fd", "\u20e3", "\U000e0067\U000e007f")
_TEXT_OF_WORDS = (
    "the quick brown fox don't we'll I'm THEY'RE O'Neill naïve café straße İstanbul ΣΊΣΥΦΟΣ Привет мир შენ γειά "
    "مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก 日本語の文章 こんにちは カタカナ ﾊﾝｶｸ 中文句子 "
    "안녕하세요 한국어 Việt Nam ไทย 𝒻𝒶𝓃𝒸𝓎 Ｆｕｌｌ ﬁne ² ½ Ⅷ ① ㎏ 1,234.5e-6 3.14159 2026-11-29 "
    "https://example.org/a?b=c&d=%20 a@b.co foo_bar CamelCase x86_64 C++ #tag @user --flag key=value... "
    "!!! ??? “quoted” ‘single’ – — … ₿ € 🎉 👩‍👩‍👧"
)
_WORDS = _TEXT_OF_WORDS.split()
_PROSE = (
    "The committee met twice, in May and in June; nothing was decided.",
    "Das Straßenverkehrsgesetz regelt die Geschwindigkeitsbegrenzung außerhalb geschlossener Ortschaften.",
    "L'été dernier, nous avons goûté aux crêpes à l'œuf près de l'église.",
    "El niño comió piñas; ¿quién las trajo? ¡Nadie lo sabe!",
    "Быстрая коричневая лиса перепрыгивает через ленивую собаку.",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "人人生而自由，在尊严和权利上一律平等。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
)
_MARKUP = (
    "<p>Hello&nbsp;<b>world</b> &amp; <a href='x?y=1&z=2'>link</a></p>\n<!-- comment --><br/>",
    "<script>if (a<b && c>d) { x = '</s>'; }</script>",
    '{"key": [1, 2.5, null, true], "nested": {"a": "\\u00e9\\n"}}',
    "def f(x):\n\tif x is None:\n\t    return  {}\n\n\n\n\treturn [i**2 for i in x]  # done\r\n",
    "SELECT *\r\nFROM t\r\n\r\nWHERE a<>b AND c LIKE '%x%';\r",
    "```python\nprint('hi')\n```\n\n| a | b |\n|---|---|\n\n$$\\int_0^\\infty e^{-x^2}\\,dx$$",
)


def hard_texts(special_tokens: Sequence[str], seed: int = 0, *, small: bool = False) -> dict[str, list[str]]:
    """All texts by kind.

    Args:
        special_tokens: Contents of the added tokens of the vocabulary, to be put into texts.
        seed: Of the random strings.
        small: A few thousand texts in place of a million.
    """
    rng = np.random.default_rng(seed)
    characters = _characters(step=97 if small else 1)
    return {
        "character alone": characters,
        "character in a word": [f"ab{character}cd" for character in characters],
        "character between words": [f"ab {character} cd {character}ef gh{character}" for character in characters[::3]],
        "character beside signs": [f"º{character}¯\u0301{character}º" for character in characters],
        "row of characters": _rows(step=4096 if small else 64),
        "white space": _white_space(),
        "control characters": _between_words(_CONTROLS),
        "combining marks": _combining(step=7 if small else 1),
        "emoji": _emoji(step=29 if small else 1),
        "long words": _long_words(300 if small else 100_000),
        "special tokens": _special(special_tokens),
        "right to left and mixed": _mixed(),
        "looks invalid": _invalid(),
        "markup and code": [*_MARKUP, *_code(2 if small else 60)],
        "base64": _base64(rng, (20, 300) if small else (20, 300, 5_000, 50_000)),
        "prose": [*_PROSE, " ".join(_PROSE), "\n\n".join(_PROSE), " ".join(_WORDS), *_WORDS],
        "random words": [_random_words(rng) for _ in range(200 if small else 20_000)],
        "random words of few letters": [_few_letters(rng) for _ in range(1_000 if small else 100_000)],
        "random characters": [_random_characters(rng) for _ in range(500 if small else 50_000)],
    }


def _characters(step: int) -> list[str]:
    """Every character, with a step every so many, but those below U+0300 in any case."""
    planes = itertools.chain.from_iterable(range(plane << 16, (plane + 1) << 16) for plane in _PLANES)
    return [chr(code) for code in planes if not 0xD800 <= code < 0xE000 and (code < 0x300 or code % step == 0)]


def _rows(step: int) -> list[str]:
    starts = [(plane << 16) + row for plane in _PLANES for row in range(0, 1 << 16, step)]
    rows = [[chr(code) for code in range(start, start + 64) if not 0xD800 <= code < 0xE000] for start in starts]
    return [separator.join(row) for row in rows if row for separator in ("", " ")]


def _between_words(characters: str) -> list[str]:
    texts = [f"{a}one{b}two{a}" for a, b in itertools.product(characters, repeat=2)]
    return ["", *texts, *(character * 3 for character in characters)]


def _white_space() -> list[str]:
    runs = ["".join(run) for run in itertools.product(" \t\n\r\u00a0\u3000", repeat=4)]
    return [*_between_words(_SPACES), *(f"x{run}y!{run}" for run in runs), *(" " * count for count in (2, 7, 64, 1000))]


def _combining(step: int) -> list[str]:
    """Bases with up to three marks in every order: composed or not, and what lies between."""
    orders = ["".join(order) for size in (1, 2, 3) for order in itertools.permutations(_MARKS, size)]
    texts = [f"{base}{order}z" for base in _BASES for order in orders][::step]
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD") for text in _WORDS]
    return [*texts, *forms, *_MARKS, "a" + _MARKS * 20, _MARKS * 5 + "a"]


def _emoji(step: int) -> list[str]:
    pairs = itertools.product(_EMOJI, _JOINERS, _EMOJI, _JOINERS)
    return [*["".join(parts) for parts in pairs][::step], _EMOJI, f"text{_EMOJI}text {_EMOJI}"]


def _long_words(length: int) -> list[str]:
    units = (
        "a",
        "ab",
        "Zz",
        "é",
        "e\u0301",
        "日",
        "カタ",
        "ة",
        "😀",
        "👩\u200d",
        "1",
        "12",
        "!",
        "-",
        ".\u200b",
        "ß",
        " ",
        "\n",
    )
    return [(unit * length)[:size] for unit in (*units, " ", "\n") for size in (99, 100, 101, 102, 128, length)]


def _special(tokens: Sequence[str]) -> list[str]:
    frames = (
        "{0}",
        " {0} ",
        "a{0}b",
        "a {0} b",
        "{0}{0}",
        "{0}\n{0}",
        "<{0}>",
        "▁{0}",
        "日{0}本",
        "{0}'s",
        "  {0}  \n",
    )
    known = [
        *tokens,
        "[CLS]",
        "[SEP]",
        "<s>",
        "</s>",
        "<unk>",
        "<mask>",
        "<|endoftext|>",
        "<|im_start|>",
        "<think>",
        "▁",
    ]
    cases = [case for token in known for case in (token, token.lower(), token.upper(), token[:-1], token.title())]
    texts = [frame.format(case) for frame in frames for case in dict.fromkeys(cases)]
    return [*texts, *(a + b for a, b in itertools.product(known, repeat=2))]


def _mixed() -> list[str]:
    pairs = ["{}{}{}".format(*pair) for pair in itertools.product(_WORDS, ("", " ", "\u200f", "\u202e"), _WORDS)]
    return [*pairs, "\u202bשלום (world) مرحبا\u202c 123", "abc\u2066אבג\u2069def"]


def _invalid() -> list[str]:
    """What broken decoders leave behind, noncharacters, and the ends of the range."""
    odd = [
        "\ufffd",
        "\ufffe",
        "\uffff",
        "\ufeff",
        "\U0010ffff",
        "\U000fffff",
        "\ue000",
        "\x00",
        "\x80",
        "\xc3\x28",
        "\xed\xa0\x80",
    ]
    mojibake = [word.encode().decode("latin-1") for word in _WORDS]
    percent = ["\\xff\\xfe", "%C3%28", "\\ud800", "&#xD800;", "<0x0A>", "<0xFF>", "Ġthe", "Ċ", "##ing", "▁the"]
    return [*odd, *(f"a{text}b {text}{text}" for text in (*odd, *percent)), *mojibake, *percent]


def _code(count: int) -> list[str]:
    """Modules of the standard library: long texts of real code."""
    files = sorted(Path(base64.__file__).parent.glob("*.py"))[:count]
    return [file.read_text(encoding="utf-8", errors="replace")[:20_000] for file in files]


def _base64(rng: np.random.Generator, sizes: Sequence[int]) -> list[str]:
    encoders = (base64.b64encode, base64.b85encode, bytes.hex, base64.encodebytes)
    texts = [encode(rng.bytes(size)) for size in sizes for encode in encoders]
    return [text if isinstance(text, str) else text.decode() for text in texts]


def _random_words(rng: np.random.Generator) -> str:
    words = rng.choice(np.array(_WORDS, dtype=object), size=rng.integers(1, 40))
    separators = rng.choice(
        np.array([" ", " ", " ", "", "\n", ", ", "  ", ".\n\n", "\t", "-"], dtype=object), size=len(words)
    )
    return "".join(itertools.chain.from_iterable(zip(words, rng.choice(separators, size=len(words)), strict=True)))


def _few_letters(rng: np.random.Generator) -> str:
    """A word that has many ways to be cut, some as good as others: `annnnn`, DNA, runs of signs."""
    alphabet = rng.choice(
        ["abcdefghijklmnoprstuvwyz", "ACGT", "acgt", "0123456789abcdef", "!?.-=*_#~", "абвгде", "のはが的了是"]
    )
    some = rng.choice(list(str(alphabet)), size=rng.integers(2, 7))
    return "".join(rng.choice(some, size=rng.integers(5, 60)))


def _random_characters(rng: np.random.Generator) -> str:
    """A mix of ASCII, letters of many scripts, marks, spaces and anything."""
    tops = rng.choice([0x7F, 0xFF, 0x590, 0x900, 0x3100, 0xD7FF, 0x1FFFF, 0x10FFFF], size=rng.integers(1, 60))
    codes = (rng.random(len(tops)) * tops).astype(int)
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
