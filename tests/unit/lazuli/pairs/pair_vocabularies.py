"""Small tokenizers of the kinds that rerankers have, written as checkpoints without weights."""

import json
from functools import cache

from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

TEXTS = [
    "what is a panda and where does it live",
    "The giant panda (Ailuropoda melanoleuca) is a bear species endemic to China.",
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided.",
    "Given a web search query, retrieve relevant passages that answer the query. yes or no, user and assistant",
    "numbers 1 2 3 10 200 and signs: <> {} [] () .,;!? ßäöü 日本語",
]


def xlm_roberta():
    """As XLM-RoBERTa's: two separators between the texts, and no segments."""
    return Tokenizer.from_str(_xlm_roberta())


@cache  # no two trainings give the same
def _xlm_roberta():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=200, show_progress=False, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer.to_str()


def qwen3(end=False):
    """As Qwen3's: bytes, special tokens for turns; `end` puts one behind each text, as the one for embeddings does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    )
    tokenizer.add_tokens([word for word in ("yes", "no") if tokenizer.token_to_id(word) is None])
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if end:
        number = tokenizer.token_to_id("<|endoftext|>")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", number)]
        )
    return tokenizer


def write(folder, tokenizer, architecture, **config):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    model = {"architectures": [architecture], "max_position_embeddings": 40960, **config}
    (folder / "config.json").write_text(json.dumps(model))
    return folder
