"""Late interaction against the MultiVectorEncoder of sentence-transformers, on the same texts."""

import json
import string

import numpy as np
import pytest
import torch

from lazuli.checkpoint import load_checkpoint
from lazuli.config import TokenizerConfig
from lazuli.errors import ConfigError, OptionError
from lazuli.options import RequestOptions
from lazuli.tokenizer import TextTokenizer
from lazuli.tokenwise.facts import read_token_facts
from lazuli.tokenwise.probe import run_pairs, run_tokens

DOCUMENTS = ["w1 w2, w3.", "w1", "!!!", "w5 w6 abc. w7, w1 w2 w3 w4"]
QUERIES = ["w3 w1?", "w2, w2"]


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def encoder(request):
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from transformers import BertConfig, BertModel, BertTokenizerFast, ModernBertConfig, ModernBertModel

    def make(folder, expansion=None, **mask):
        letters = string.ascii_lowercase + string.digits
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words = [*special, *".,!?", *(f"w{number}" for number in range(20)), *letters, *(f"##{x}" for x in letters)]
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(words))
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
        sizes |= {"vocab_size": len(words), "max_position_embeddings": 64, "pad_token_id": 0}
        if request.param == "bert":
            model = BertModel(BertConfig(**sizes)).eval()
        else:  # with a window of 20 tokens to each side in one of two layers
            special_ids = {"bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
            layers = {"local_attention": 40, "global_attn_every_n_layers": 2}
            model = ModernBertModel(ModernBertConfig(**sizes, **special_ids, **layers)).eval()
        for parameter in model.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
        tokens = {"module_input_name": "token_embeddings"}
        dense = Dense(32, 16, bias=False, activation_function=torch.nn.Identity(), **tokens)
        trunk = Transformer(str(folder), query_expansion=expansion)
        modules = [trunk, dense, MultiVectorMask(**mask), Normalize(**tokens)]
        return MultiVectorEncoder(modules=modules, device="cpu")

    return make


@pytest.fixture
def saved(tmp_path, encoder):
    reference = encoder(tmp_path / "base", skiplist_words=list(string.punctuation))
    reference.save_pretrained(str(tmp_path / "saved"))
    return tmp_path / "saved", reference


def tokenize(folder, texts, **options):
    tokenizer = TextTokenizer.from_config(TokenizerConfig(checkpoint=str(folder)))
    return [np.array(text.input_ids, dtype=np.int32) for text in tokenizer.tokenize(texts, RequestOptions(**options))]


def multi_of(engine, rows, input_type=None):
    outputs = run_tokens(engine.run, rows, engine.answers.choose(RequestOptions(input_type=input_type)))
    counts = outputs["multi_vector_count"][:, 0]
    return [vectors[:count] for vectors, count in zip(outputs["multi_vector"], counts, strict=True)]


@pytest.mark.parametrize("input_type", [None, "document", "query"])
def test_against_the_reference(saved, make_engine, input_type):
    folder, reference = saved
    encode = reference.encode_query if input_type == "query" else reference.encode_document
    vectors = multi_of(make_engine(folder), tokenize(folder, DOCUMENTS), input_type)
    for mine, expected in zip(vectors, encode(DOCUMENTS), strict=True):
        np.testing.assert_allclose(mine, np.asarray(expected), atol=1e-5)


def test_scores(saved, make_engine):
    folder, reference = saved
    queries, documents = tokenize(folder, QUERIES), tokenize(folder, DOCUMENTS)
    pairs = [(query, document) for query in queries for document in documents]
    scores = run_pairs(make_engine(folder, task="rerank").run, pairs)
    expected = reference.similarity(reference.encode_query(QUERIES), reference.encode_document(DOCUMENTS))
    np.testing.assert_allclose(scores.reshape(expected.shape), np.asarray(expected), rtol=1e-5, atol=1e-5)


def test_there_are_no_vectors_of_texts(saved, make_engine):
    engine = make_engine(saved[0])
    with pytest.raises(OptionError, match="output: dense: the model has no such output, it has multi"):
        engine.answers.choose(RequestOptions(output=("float32",)))


def test_as_pylate_writes_it(saved, make_engine):
    """Only two modules, of its own package, and punctuation skipped although nothing says so."""
    folder, reference = saved
    entries = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "pylate.models.Dense.Dense", "path": "1_Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    config = {"in_features": 32, "out_features": 16, "bias": False}
    config["activation_function"] = "torch.nn.modules.linear.Identity"
    (folder / "1_Dense" / "config.json").write_text(json.dumps(config))
    settings = {"query_prefix": "", "document_prefix": "", "do_query_expansion": False}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    vectors = multi_of(make_engine(folder), tokenize(folder, DOCUMENTS))
    for mine, expected in zip(vectors, reference.encode_document(DOCUMENTS), strict=True):
        np.testing.assert_allclose(mine, np.asarray(expected), atol=1e-5)


def test_the_mean_where_the_checkpoint_asks_for_it(saved, make_engine):
    folder, _ = saved
    rows = tokenize(folder, [*QUERIES[:1], *DOCUMENTS[:1]])
    sums = run_pairs(make_engine(folder, task="rerank").run, [tuple(rows)])
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    settings["similarity_fn_name"] = "meanmaxsim"
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    means = run_pairs(make_engine(folder, task="rerank").run, [tuple(rows)])
    np.testing.assert_allclose(means * len(rows[0]), sums, rtol=1e-6)


@pytest.mark.parametrize("prefix", ["[Q] ", "[unused0]"])
def test_prefixes_are_tokens_of_their_own(saved, prefix):
    """As PyLate inserts them: behind the first special token. A text does not become one."""
    folder, _ = saved
    definition = json.loads((folder / "tokenizer.json").read_text())
    token = {"id": 90, "content": prefix, "special": True, "normalized": False}
    token |= {"single_word": False, "lstrip": False, "rstrip": False}
    definition["added_tokens"].append(token)
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    settings = {"query_prefix": prefix, "document_prefix": "w3 ", "prompts": {"query": prefix}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    plain, with_prompt = tokenize(folder, ["w1 w2"]), tokenize(folder, ["w1 w2"], input_type="query")
    assert with_prompt[0].tolist() == [2, 90, *plain[0].tolist()[1:]]
    document = tokenize(folder, ["w1 w2"], input_type="document")
    assert document[0].tolist() == tokenize(folder, ["w3 w1 w2"])[0].tolist()
    cut = tokenize(folder, ["w1 " * 100], input_type="query", truncate="end")[0]
    assert (len(cut), cut[1], cut[-1]) == (64, 90, 3)
    asked = tokenize(folder, ["w1 w2"], instruction=prefix)[0]
    assert 90 not in asked[:2]


@pytest.mark.parametrize("attend", [False, True])
@pytest.mark.parametrize("token", [None, "w0"])
def test_query_expansion(tmp_path, encoder, make_engine, attend, token):
    expansion = {"strategy": "min", "attend": attend, "length": 16, "token": token}
    reference = encoder(tmp_path / "base", expansion, skiplist_words=[",", "."])
    reference.save_pretrained(str(tmp_path / "saved"))
    folder, long = tmp_path / "saved", " ".join(f"w{number}" for number in range(18))
    queries, documents = [*QUERIES, long], [*DOCUMENTS, f"{long} {long}"]
    engine = make_engine(folder)
    for texts, kind, encode in (
        (queries, "query", reference.encode_query),
        (documents, "document", reference.encode_document),
    ):
        vectors = multi_of(engine, tokenize(folder, texts), kind)
        for text, mine, expected in zip(texts, vectors, encode(texts), strict=True):
            np.testing.assert_allclose(mine, np.asarray(expected), atol=1e-5, err_msg=text)
    rows = [tokenize(folder, texts) for texts in (queries, documents)]
    pairs = [(query, document) for query in rows[0] for document in rows[1]]
    scores = run_pairs(make_engine(folder, task="rerank").run, pairs)
    expected = reference.similarity(reference.encode_query(queries), reference.encode_document(documents))
    np.testing.assert_allclose(scores.reshape(expected.shape), np.asarray(expected), rtol=1e-5, atol=1e-5)


def test_pylate_expands_unless_it_says_otherwise(saved):
    folder, _ = saved
    (folder / "sentence_bert_config.json").write_text("{}")
    file = folder / "config_sentence_transformers.json"
    for settings, length in (
        ({"query_prefix": ""}, 32),
        ({"query_prefix": "", "query_length": 48}, 48),
        ({"query_prefix": "", "do_query_expansion": False}, None),
        ({}, None),
    ):
        file.write_text(json.dumps(settings))
        expansion = read_token_facts(load_checkpoint(str(folder))).multi.expansion
        assert (None if expansion is None else expansion.length) == length
        assert expansion is None or (expansion.token_id, expansion.attend) == (4, False)


@pytest.mark.parametrize(("name", "value"), [("skiplist_tasks", ["query"]), ("keep_only_token_ids", [1])])
def test_masks_of_other_kinds_are_refused(saved, name, value):
    folder, _ = saved
    file = folder / "2_MultiVectorMask" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
    with pytest.raises(ConfigError, match="only words that documents skip are supported"):
        read_token_facts(load_checkpoint(str(folder)))
