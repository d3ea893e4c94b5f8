import numpy as np
import pytest

from lazuli_client import ServerError
from lazuli_client.embeddings import concatenate, from_outputs

GOOD = {
    "embedding": np.ones((2, 3), np.float32),
    "token_count": np.array([[1], [2]], np.int32),
    "truncated": np.array([[False], [True]]),
}


def test_columns_become_flat():
    result = from_outputs(GOOD, 2)
    assert result.embeddings.shape == (2, 3)
    assert result.embeddings.dtype == np.float32
    assert result.token_counts.tolist() == [1, 2]
    assert result.truncated.tolist() == [False, True]
    assert len(result) == 2


def test_without_a_tokenizer_nothing_was_truncated():
    result = from_outputs({name: GOOD[name] for name in ("embedding", "token_count")}, 2)
    assert result.truncated.tolist() == [False, False]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"embedding": np.ones((1, 3), np.float32)}, r"shape \[1, 3\] for 2 rows"),
        ({"embedding": np.ones(6, np.float32)}, r"shape \[6\]"),
        ({"token_count": np.array([[1]], np.int32)}, "token_count: the server answered 1 values for 2 rows"),
        ({"truncated": np.array([True])}, "truncated"),
    ],
)
def test_a_wrong_answer_is_the_servers_fault(change, match):
    with pytest.raises(ServerError, match=match):
        from_outputs({**GOOD, **change}, 2)


def test_a_missing_output_is_named():
    with pytest.raises(ServerError, match="lacks the output 'token_count'"):
        from_outputs({"embedding": GOOD["embedding"]}, 2)


def test_concatenate_keeps_order_and_refuses_other_widths():
    whole = concatenate([from_outputs(GOOD, 2), from_outputs(GOOD, 2)])
    assert whole.token_counts.tolist() == [1, 2, 1, 2]
    other = from_outputs({**GOOD, "embedding": np.ones((2, 5), np.float32)}, 2)
    with pytest.raises(ServerError, match=r"\[3, 5\]"):
        concatenate([whole, other])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("embedding_float16", np.float16),
        ("embedding_int8", np.int8),
        ("embedding_uint8", np.uint8),
        ("embedding_binary", np.int8),
        ("embedding_ubinary", np.uint8),
    ],
)
def test_vectors_of_other_types(name, dtype):
    values = np.arange(6).reshape(2, 3).astype(dtype)
    outputs = {name: values, "token_count": GOOD["token_count"]}
    result = from_outputs(outputs, 2)
    assert result.embeddings.dtype == dtype
    assert result.embeddings.tolist() == values.tolist()
    assert concatenate([result, result]).embeddings.dtype == dtype
    with pytest.raises(ServerError, match=rf"{name}: the server answered shape \[2, 3\] for 3 rows"):
        from_outputs(outputs, 3)
