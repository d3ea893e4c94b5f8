import itertools

from lazuli_client.splitting import Splitter, split


def cut(sizes, max_rows=3, max_size=10):
    return [chunk.items for chunk in split(((size, size) for size in sizes), Splitter(max_rows, max_size))]


def test_bounded_by_rows():
    assert cut([1] * 7) == [[1, 1, 1], [1, 1, 1], [1]]


def test_bounded_by_size():
    assert cut([4, 4, 4, 4]) == [[4, 4], [4, 4]]
    assert cut([5, 5, 1]) == [[5, 5], [1]]


def test_a_large_item_goes_alone():
    assert cut([1, 99, 1]) == [[1], [99], [1]]
    assert cut([99]) == [[99]]


def test_empty_items_count_as_rows():
    assert cut([0] * 4) == [[0, 0, 0], [0]]


def test_nothing():
    assert cut([]) == []


def test_rows_are_counted_over_the_whole_input():
    chunks = list(split(((item, 1) for item in "abcde"), Splitter(2, 99, first_row=100)))
    assert [chunk.rows for chunk in chunks] == [range(100, 102), range(102, 104), range(104, 105)]


def test_unbounded_input_is_read_no_further_than_the_chunk():
    read = []
    endless = ((read.append(item) or item, 1) for item in itertools.count())
    chunks = split(endless, Splitter(4, 99))
    assert next(chunks).items == [0, 1, 2, 3]
    assert read == [0, 1, 2, 3]
