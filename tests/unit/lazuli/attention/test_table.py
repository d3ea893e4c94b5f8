import json

import pytest

from lazuli.attention.base import AttentionShape
from lazuli.attention.table import TABLE, Entry, entries_for, nearest, read_entries, typical_length

QWEN = AttentionShape(16, 8, 128, causal=False, num_layers=28)
HOPPER = (9, 0)


def entry(num_tokens=128, length=128.0, shape=QWEN, plan_us=None, **call_us):
    return Entry(shape, num_tokens, length, call_us, plan_us or {})


def line(gpu="H200", capability=HOPPER, num_tokens=640, num_sequences=5, max_seqlen=128):
    heads = {"num_heads": 16, "num_kv_heads": 8, "head_dim": 128, "causal": True}
    layout = {"num_tokens": num_tokens, "num_sequences": num_sequences, "max_seqlen": max_seqlen}
    return {
        "gpu": gpu,
        "capability": list(capability),
        **heads,
        **layout,
        "call_us": {"a": 9.5},
        "plan_us": {"a": 40.0},
    }


class TestQuickest:
    def test_only_among_those_that_can_be_used(self):
        measured = entry(a=3.0, b=1.0, c=2.0)
        assert measured.quickest({"a", "b", "c"}, 1) == "b"
        assert measured.quickest({"a", "c"}, 1) == "c"
        assert measured.quickest({"d"}, 1) is None

    @pytest.mark.parametrize(("num_layers", "expected"), [(10, "unplanned"), (50, "planned")])
    def test_a_plan_pays_where_there_are_enough_layers(self, num_layers, expected):
        measured = entry(plan_us={"planned": 90.0}, planned=5.0, unplanned=8.0)
        assert measured.quickest({"planned", "unplanned"}, num_layers) == expected


class TestLength:
    @pytest.mark.parametrize("batch", [1, 5, 50])
    def test_equal_texts(self, batch):
        assert typical_length(128 * batch, batch, 128) == pytest.approx(128)

    def test_lies_between_the_mean_and_the_longest(self):
        assert 100 < typical_length(1000, 10, 500) < 500

    def test_a_mere_bound_is_cut_to_the_tokens(self):
        assert typical_length(16, 1, 8192) == 16

    def test_more_sequences_than_tokens(self):
        assert typical_length(4, 8, 2) == pytest.approx(2**0.5)


class TestNearest:
    def test_in_doublings(self):
        small, large = entry(64, 64.0), entry(4096, 64.0)
        assert nearest([small, large], 500, 64.0) is small
        assert nearest([small, large], 520, 64.0) is large
        assert nearest([small, large], 10, 64.0) is small

    def test_length_decides_among_equal_tokens(self):
        one, many = entry(4096, 4096.0), entry(4096, 64.0)
        assert nearest([one, many], 4000, 3000.0) is one
        assert nearest([one, many], 4000, 100.0) is many


class TestShapes:
    def test_the_same_shape_wins_whatever_the_layers(self):
        mine, other = entry(shape=QWEN), entry(shape=AttentionShape(16, 8, 64, causal=False, num_layers=28))
        asked = AttentionShape(16, 8, 128, causal=False, num_layers=3)
        assert entries_for(asked, [other, mine]) == [mine]

    @pytest.mark.parametrize(
        "unlike",
        [
            AttentionShape(32, 8, 64, causal=False, num_layers=1),
            AttentionShape(16, 16, 64, causal=False, num_layers=1),
            AttentionShape(16, 8, 128, causal=True, num_layers=1),
        ],
    )
    def test_other_head_counts_are_nearer_than_other_kernels(self, unlike):
        like = AttentionShape(32, 16, 128, causal=False, num_layers=1)
        assert entries_for(QWEN, [entry(shape=unlike), entry(shape=like)])[0].shape is like

    def test_nothing_measured(self):
        assert entries_for(QWEN, []) == []


class TestFile:
    def write(self, tmp_path, *lines):
        file = tmp_path / "table.json"
        file.write_text(json.dumps(lines))
        return file

    def test_an_entry(self, tmp_path):
        (read,) = read_entries("H200", HOPPER, self.write(tmp_path, line()))
        assert read.shape == AttentionShape(16, 8, 128, causal=True, num_layers=1)
        assert (read.num_tokens, read.call_us, read.plan_us) == (640, {"a": 9.5}, {"a": 40.0})
        assert read.length == pytest.approx(128)

    def test_the_gpu_itself_is_preferred_to_one_of_its_kind(self, tmp_path):
        file = self.write(tmp_path, line("H100", num_tokens=1), line("H200", num_tokens=2), line("A100", (8, 0)))
        assert [read.num_tokens for read in read_entries("H200", HOPPER, file)] == [2]
        assert [read.num_tokens for read in read_entries("GH200", HOPPER, file)] == [1, 2]
        assert read_entries("L4", (8, 9), file) == []

    def test_the_committed_table_can_be_read(self):
        for written in json.loads(TABLE.read_text()):
            assert read_entries(written["gpu"], tuple(written["capability"]))
