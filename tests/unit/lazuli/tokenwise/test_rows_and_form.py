import numpy as np
import pytest

from lazuli.errors import NonFiniteError
from lazuli.tokenwise.facts import MultiFacts
from lazuli.tokenwise.form import TokenForm, join
from lazuli.tokenwise.rows import MultiRows, SparseRows, TokenRows
from lazuli.tokenwise.selection import select_tokens

IDS = np.array([7, 5, 7, 9, 5, 5, 5, 8], dtype=np.int32)
CU_SEQLENS = np.array([0, 4, 7, 8], dtype=np.int32)


def rows(sparse):
    return [
        dict(zip(*(part.tolist() for part in sparse.row(row)), strict=True)) for row in range(len(sparse.starts) - 1)
    ]


def test_an_id_counts_once_with_its_largest_weight():
    weights = np.array([1, 2, 3, 0, 4, 6, 5, 0], dtype=np.float32)
    assert rows(SparseRows.from_tokens(IDS, weights, CU_SEQLENS)) == [{5: 2, 7: 3}, {5: 6}, {}]


def test_a_weight_that_is_not_finite_is_kept():
    weights = np.array([1, 2, np.nan, 0, np.inf, 6, 5, 0], dtype=np.float32)
    sparse = SparseRows.from_tokens(IDS, weights, CU_SEQLENS)
    assert [np.isfinite(sparse.row(row)[1]).all() for row in range(3)] == [False, False, True]


def test_entries_of_a_matrix():
    matrix = np.array([[0, 0.5, 0], [0, 0, 0], [1, 0, 2]], dtype=np.float32)
    places = np.argwhere(matrix)
    sparse = SparseRows.from_places(places, matrix[tuple(places.T)], 3)
    assert rows(sparse) == [{1: 0.5}, {}, {0: 1, 2: 2}]


@pytest.fixture
def values():
    weights = np.array([1, 2, 3, 0, 4, 6, 5, 0], dtype=np.float32)
    vectors = np.arange(16, dtype=np.float32).reshape(8, 2) + 1
    return TokenRows(
        np.arange(3), sparse=SparseRows.from_tokens(IDS, weights, CU_SEQLENS), multi=MultiRows(vectors, CU_SEQLENS)
    )


def test_a_part_is_padded_to_its_longest(values):
    form = TokenForm(["sparse", "multi"], None, is_query=False)
    outputs = form.read(np.array([4, 6]), values[np.array([1, 2])])
    assert outputs["sparse_ids"].tolist() == [[5], [-1]]
    assert outputs["sparse_weights"].tolist() == [[6.0], [0.0]]
    assert outputs["multi_vector"].tolist() == [[[9, 10], [11, 12], [13, 14]], [[15, 16], [0, 0], [0, 0]]]
    assert outputs["multi_vector_count"].tolist() == [[3], [1]]
    assert {name: output.dtype for name, output in outputs.items()} == {
        "sparse_ids": np.int32,
        "sparse_weights": np.float32,
        "multi_vector": np.float32,
        "multi_vector_count": np.int32,
    }


def test_parts_are_joined_in_the_order_of_rows(values):
    form = TokenForm(["sparse", "multi"], None, is_query=False)
    whole = form.read(np.array([0, 1, 2]), values)
    parts = [(index, form.read(index, values[index])) for index in (np.array([1]), np.array([0, 2]))]
    joined = join(parts, 3)
    for name, expected in whole.items():
        np.testing.assert_array_equal(joined[name], expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_names_the_row(values, value):
    values.multi.vectors[5, 1] = value
    form = TokenForm(["multi"], None, is_query=False)
    with pytest.raises(NonFiniteError, match=r"multi_vector\[8\]: the model computed NaN or Inf"):
        form.read(np.array([3, 8, 9]), values)
    form.read(np.array([3, 9]), values[np.array([0, 2])])


class TestSelection:
    def test_all(self):
        kept = select_tokens(IDS, CU_SEQLENS, np.zeros(3, bool), MultiFacts())
        assert kept.places is None
        assert kept.cu_seqlens is CU_SEQLENS

    def test_without_the_first_token(self):
        kept = select_tokens(IDS, CU_SEQLENS, np.zeros(3, bool), MultiFacts(skip_first=True))
        assert kept.places.tolist() == [1, 2, 3, 5, 6]
        assert kept.cu_seqlens.tolist() == [0, 3, 5, 5]

    def test_documents_skip_tokens(self):
        is_query = np.array([False, True, False])
        kept = select_tokens(IDS, CU_SEQLENS, is_query, MultiFacts(skipped_ids=frozenset({5, 8})))
        assert kept.places.tolist() == [0, 2, 3, 4, 5, 6]
        assert kept.cu_seqlens.tolist() == [0, 3, 6, 6]
