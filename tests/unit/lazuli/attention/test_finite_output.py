import pytest
import torch

from lazuli.attention.finite_output import FiniteOutput


def make_output():
    return FiniteOutput(2, 8, torch.device("cpu"), torch.bfloat16)


def test_rows_are_zero_at_first_and_the_same_memory_each_time():
    output = make_output()
    output.prepare(5, 5)
    rows = output.rows(5)
    assert rows.shape == (5, 2, 8)
    assert rows.dtype == torch.bfloat16
    assert not rows.any()
    assert output.rows(3).data_ptr() == rows.data_ptr()


def test_addresses_outlive_growth():
    output = make_output()
    output.prepare(4, 4)
    before = output.rows(4)
    output.prepare(5, 5)
    assert len(output.rows(5)) == 5
    assert output.rows(4).data_ptr() == before.data_ptr()
    assert output.rows(8).data_ptr() == output.rows(5).data_ptr()  # it doubles


def test_room_must_have_been_made():
    output = make_output()
    output.prepare(4, 4)
    with pytest.raises(AssertionError, match="not called for 5 tokens"):
        output.rows(5)


def test_what_an_earlier_batch_has_left_in_the_padding_is_zeroed():
    output = make_output()
    output.prepare(600, 600)
    output.rows(600).fill_(float("nan"))
    output.prepare(300, 600)
    assert output.rows(600)[:300].isnan().all()
    assert not output.rows(600)[300:556].any()  # a tile; what lies behind is never read
