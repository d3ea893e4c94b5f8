import numpy as np
import pytest

from lazuli_client.embeddings import concatenate, from_outputs
from lazuli_client.errors import ServerError
from lazuli_client.token_outputs import SparseVector, max_sim, read_multi, read_sparse

SPARSE = {
    "sparse_ids": np.array([[3, 9, -1], [-1, -1, -1], [0, 1, 2]], np.int32),
    "sparse_weights": np.array([[0.5, 0.25, 0], [0, 0, 0], [1, 2, 3]], np.float32),
}
MULTI = {
    "multi_vector": np.arange(24, dtype=np.float32).reshape(3, 4, 2),
    "multi_vector_count": np.array([[4], [1], [0]], np.int32),
}
COUNTS = {"token_count": np.array([[4], [2], [5]], np.int32)}


def test_padding_is_taken_off():
    assert [row.as_dict() for row in read_sparse(SPARSE, 3)] == [{3: 0.5, 9: 0.25}, {}, {0: 1, 1: 2, 2: 3}]
    assert [row.shape for row in read_multi(MULTI, 3)] == [(4, 2), (1, 2), (0, 2)]
    assert read_multi(MULTI, 3)[1].tolist() == [[8, 9]]


def test_what_was_not_asked_for_is_none():
    assert read_sparse(MULTI, 3) is None
    assert read_multi(SPARSE, 3) is None


def test_an_answer_without_vectors():
    answer = from_outputs({**SPARSE, **COUNTS}, 3)
    assert answer.embeddings.shape == (3, 0)
    assert len(answer) == 3
    assert answer.multi is None
    joined = concatenate([answer, answer])
    assert len(joined.sparse) == 6
    assert joined.multi is None


def test_all_in_one_answer():
    vectors = np.ones((3, 8), np.float32)
    answer = concatenate([from_outputs({"embedding": vectors, **SPARSE, **MULTI, **COUNTS}, 3)])
    assert answer.embeddings.shape == (3, 8)
    assert (len(answer.sparse), len(answer.multi)) == (3, 3)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"sparse_ids": SPARSE["sparse_ids"]}, "lacks the output 'sparse_weights'"),
        ({**SPARSE, "sparse_ids": SPARSE["sparse_ids"][:2]}, r"sparse_ids: .* shape \[2, 3\] for 3 rows"),
        ({**SPARSE, "sparse_weights": SPARSE["sparse_weights"][:, :2]}, r"shape \[3, 2\] for ids \[3, 3\]"),
        ({"multi_vector": MULTI["multi_vector"]}, "lacks the output 'multi_vector_count'"),
        ({**MULTI, "multi_vector": np.ones((3, 4))}, r"multi_vector: .* shape \[3, 4\] for 3 rows"),
    ],
)
def test_an_answer_that_does_not_fit(outputs, message):
    with pytest.raises(ServerError, match=message):
        from_outputs({**outputs, **COUNTS}, 3)


def test_scores():
    first = SparseVector(np.array([1, 4, 9], np.int32), np.array([1, 2, 3], np.float32))
    second = SparseVector(np.array([4, 5, 9], np.int32), np.array([0.5, 7, 2], np.float32))
    assert first.dot(second) == second.dot(first) == 7
    assert first.dot(SparseVector(np.array([2], np.int32), np.array([1], np.float32))) == 0
    query, document = np.array([[1, 0], [0, 1]], np.float32), np.array([[0.5, 0], [0.25, -1]], np.float32)
    assert max_sim(query, document) == 0.5
