"""Answers that would be too large, as one long text among many short ones makes them."""

from pathlib import Path

import numpy as np
import pytest

from lazuli.errors import InputError
from lazuli.tokenwise.answer_size import AnswerLimit
from lazuli.tokenwise.facts import Expansion, MultiFacts, SparseFacts, TokenFacts
from lazuli.tokenwise.form import TokenForm
from lazuli.tokenwise.request import TokenRequest, TokenStreamRequest
from lazuli.tokenwise.rows import MultiRows, SparseRows, TokenRows

BGE_M3 = TokenFacts(sparse=SparseFacts(Path("sparse")), multi=MultiFacts(file=Path("multi"), skip_first=True))
SPLADE = TokenFacts(dense=False, sparse=SparseFacts(None))


def ids_of(*lengths):
    return [np.ones(length, dtype=np.int32) for length in lengths]


def make_form(wanted, facts=BGE_M3, *, is_query=False, multi_size=1024, max_mb=1):
    return TokenForm(wanted, None, is_query=is_query, limit=AnswerLimit(max_mb, facts, multi_size))


def sparse_rows(*counts):
    total = sum(counts)
    starts = np.array([0, *np.cumsum(counts)])
    return SparseRows(np.arange(total, dtype=np.int32), np.ones(total, dtype=np.float32), starts)


def multi_rows(*counts, size=1024):
    starts = np.array([0, *np.cumsum(counts)])
    return MultiRows(np.arange(sum(counts), dtype=np.float32)[:, None].repeat(size, axis=1) + 1, starts)


class TestBefore:
    def test_what_the_real_bge_m3_would_need(self):
        rows = ids_of(*(3,) * 1023, 8192)
        with pytest.raises(InputError) as caught:
            make_form(["multi"], max_mb=512).check(rows, in_parts=False)
        assert str(caught.value) == (
            "output: multi: 1024 rows, each filled up to the longest, row 1023 of 8192 tokens, make 32764 MB, but an "
            "answer may have at most 512 MB (max_answer_mb); ask for fewer or more equal texts at a time"
        )

    @pytest.mark.parametrize(
        ("wanted", "fitting", "too_many"),
        [(["multi"], 4, 5), (["sparse"], 2016, 2017), (["sparse", "multi"], 4, 5)],  # of 65 tokens
    )
    def test_just_fitting(self, wanted, fitting, too_many):
        form = make_form(wanted)
        form.check(ids_of(*(65,) * (fitting - ("sparse" in wanted and "multi" in wanted))), in_parts=False)
        with pytest.raises(InputError, match="ask for fewer or more equal texts"):
            form.check(ids_of(*(65,) * too_many), in_parts=False)

    def test_parts_can_have_single_rows(self):
        make_form(["multi"]).check(ids_of(*(3,) * 1023, 257), in_parts=True)
        with pytest.raises(
            InputError, match=r"one row, row 1 of 258 tokens, makes 2 MB, .* at most 1 MB .*; shorten it"
        ):
            make_form(["multi"]).check(ids_of(3, 258), in_parts=True)

    def test_short_queries_become_longer(self):
        facts = TokenFacts(dense=False, multi=MultiFacts(expansion=Expansion(32, 1, attend=True)))
        rows = ids_of(*(3,) * 9)
        make_form(["multi"], facts).check(rows, in_parts=False)
        with pytest.raises(InputError, match="9 rows"):
            make_form(["multi"], facts, is_query=True).check(rows, in_parts=False)

    def test_what_splade_finds_is_not_known(self):
        make_form(["sparse"], SPLADE).check(ids_of(*(9000,) * 1024), in_parts=False)


class TestWhereItIsMade:
    def test_a_part(self):
        form, rows = make_form(["multi"]), np.arange(3)
        form.read(rows, TokenRows(rows, multi=multi_rows(85, 1, 1)))
        with pytest.raises(InputError, match="3 rows, each filled up to the longest, of 86 ids or vectors, make 2 MB"):
            form.read(rows, TokenRows(rows, multi=multi_rows(86, 1, 1)))

    def test_a_whole_whose_parts_would_fit(self, make_sender):
        sender = make_sender()
        request = TokenRequest(ids_of(*(2,) * 6), make_form(["sparse"], SPLADE), sender)
        for rows, counts in (([0, 1], (9, 30000)), ([2, 3], (20000, 1)), ([4], (1,))):
            values = TokenRows(np.arange(len(rows)), sparse=sparse_rows(*counts))
            assert request.done == (rows[0] > 0)
            request.deliver(np.array(rows), values)
        assert str(sender.error()).startswith(
            "output: sparse: 6 rows, each filled up to the longest, of 30000 ids or vectors, make 2 MB"
        )

    def test_a_whole_that_fits(self, make_sender):
        sender = make_sender()
        request = TokenRequest(ids_of(2, 2, 2), make_form(["sparse"], SPLADE), sender)
        for rows, counts in (([0, 1], (9, 43690)), ([2], (43690,))):  # 3 * 43690 * 8 bytes are just below 1 MB
            request.deliver(np.array(rows), TokenRows(np.arange(len(rows)), sparse=sparse_rows(*counts)))
        assert sender.parts[0].outputs["sparse_ids"].shape == (3, 43690)


class TestParts:
    COUNTS = (1, 200, 3, 90, 2, 90)

    def test_what_is_too_large_becomes_several(self, make_sender):
        sender, form = make_sender(), make_form(["multi"])
        request = TokenStreamRequest(ids_of(*(count + 1 for count in self.COUNTS)), form, sender)
        multi = multi_rows(*self.COUNTS)
        request.deliver(np.arange(6), TokenRows(np.arange(6), multi=multi))
        assert [part.index.tolist() for part in sender.parts] == [[1], [3, 5], [0, 2, 4]]
        assert sender.finals == [False, False, True]
        for part in sender.parts:
            assert part.outputs["multi_vector"].nbytes <= 1 << 20
            for row, vectors in zip(part.index, part.outputs["multi_vector"], strict=True):
                np.testing.assert_array_equal(vectors[: self.COUNTS[row]], multi.row(row))
                assert not vectors[self.COUNTS[row] :].any()
            assert part.outputs["multi_vector_count"][:, 0].tolist() == [self.COUNTS[row] for row in part.index]
            assert part.token_count.tolist() == [self.COUNTS[row] + 1 for row in part.index]

    def test_both_outputs_count(self):
        values = TokenRows(np.arange(3), sparse=sparse_rows(100000, 1, 1), multi=multi_rows(1, 100, 1))
        portions = make_form(["sparse", "multi"]).portion(values)
        assert [portion.tolist() for portion in portions] == [[0], [1, 2]]

    def test_what_fits_stays_together(self):
        values = TokenRows(np.array([2, 0, 1]), multi=multi_rows(1, 85, 3))
        (portion,) = make_form(["multi"]).portion(values)
        assert portion.tolist() == [0, 1, 2]
