"""Whether two encoders give the same ids, on texts that tell encoders apart and take milliseconds.

Takes two functions of texts, and the tokens of a vocabulary to make texts of; returns the first text on which they
differ. `perf/bench_tokenizers.py` compares on a million texts; this is done at each start. Knows no tokenizer library.
"""

from collections.abc import Callable, Sequence

Encode = Callable[[Sequence[str]], list[list[int]]]
_TOKENS_TO_TRY = 1024
_TEXTS = (
    "",
    " ",
    "  two  spaces,\ttabs\t\tand\nlines\n\n\nof \r\n all \x0b\x0c kinds \u00a0\u2003\u3000 . \n",
    "\x00 \x01\x7f\x80\x9f\u00ad\u200b\u200d\u2028\u2029\ufeff\ufffd\ufffe\U0010ffff controls\x00inside",
    "I'm THEY'RE we'll don't O'Neill's CamelCase snake_case x86_64 C++ 1,234.5e-6 12345678901 2026-11-29",
    "x\t's\n're\u00a0'll\u3000've\r\n'd 't  'm",
    "naïve café ÅNGSTRÖM straße İstanbul ﬁne Ｆｕｌｌ ² ½ Ⅷ ① ㎏ ΣΊΣΥΦΟΣ",
    "e\u0301 o\u0323\u0302 a\u0308\u0323 \u1100\u1161\u11a8 \u05d1\u05bc\u05b7 \u3099か\u3099 q\u0307\u0323 \u212b",
    "Привет, мир! გამარჯობა Γειά σου שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก ཁམས་བཟང",
    "日本語の文章。中文句子，没有空格。안녕하세요 세계 ﾊﾝｶｸ カタカナ 𠀀𪛖",
    "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 👍🏽 🇩🇪 1\ufe0f\u20e3 ☝\ufe0e 🎉🎉🎉 text🎉text",
    "<p class='x'>a &amp; b</p><!-- c --> {\"k\": [1, null]}\n\tif (a<b && c>=d) { return x[i]++; } // done\r\n",
    "https://example.org/a?b=c&d=%20#e a@b.co C:\\dir\\file --flag=value ... !!! ??? ***** ------- “quoted” —",
    "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo0MTIzNDU2Nzg5MA== deadbeefcafebabe0123456789 0x1F600",
    "[CLS] [SEP] [MASK] [UNK] <s> </s> <unk> <pad> <mask> <|endoftext|> <|im_start|> <think> ##ing ▁the Ġthe <0x0A> ▁",
    "a" * 99 + " " + "b" * 101 + " " + "é" * 150 + " " + "ab" * 400 + " " + "日" * 300 + "!" * 200,
    " leading and trailing ",
)


def first_difference(encode: Encode, reference: Encode, tokens: Sequence[str]) -> str | None:
    """The first text whose ids differ, or None."""
    some = tokens[:: max(1, len(tokens) // _TOKENS_TO_TRY)]
    rows = [some[start : start + 32] for start in range(0, len(some), 32)]
    texts = [*_TEXTS, *(separator.join(row) for row in rows for separator in (" ", ""))]
    pairs = zip(texts, encode(texts), reference(texts), strict=True)
    return next((text for text, ids, expected in pairs if ids != expected), None)
