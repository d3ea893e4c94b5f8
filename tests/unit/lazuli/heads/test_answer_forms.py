import numpy as np
import pytest

from lazuli.errors import NonFiniteError
from lazuli.heads.answer_forms import LabelForm, ScoreForm
from lazuli.heads.head_config import HeadConfig
from lazuli.request import StreamRequest, UnaryRequest
from lazuli.scoring.options import ClassifyOptions, RerankOptions

LOGITS = np.array([[2.0], [-1.0], [0.5]], dtype=np.float32)
SIGMOIDS = 1 / (1 + np.exp(-LOGITS))
ROWS = np.arange(3, dtype=np.int32)


def score_form(default, **options):
    return ScoreForm(HeadConfig("cls", ("LABEL_0",), default), RerankOptions(**options))


def label_form(activation="softmax"):
    return LabelForm(HeadConfig("cls", ("good", "schlecht", "none"), activation), ClassifyOptions())


class TestScores:
    @pytest.mark.parametrize(
        ("default", "asked", "expected"),
        [
            ("identity", None, LOGITS),
            ("sigmoid", None, SIGMOIDS),
            ("identity", "sigmoid", SIGMOIDS),
            ("sigmoid", "sigmoid", SIGMOIDS),
            ("sigmoid", "none", LOGITS),
        ],
    )
    def test_the_request_decides_then_the_checkpoint(self, default, asked, expected):
        outputs = score_form(default, activation=asked).read(ROWS, LOGITS)
        assert outputs["score"].dtype == np.float32
        np.testing.assert_allclose(outputs["score"], expected, rtol=1e-6)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_a_score_that_is_not_finite_names_its_row(self, bad):
        logits = LOGITS[:2].copy()
        logits[1] = bad
        with pytest.raises(NonFiniteError, match=r"score\[7\]: the model computed NaN or Inf"):
            score_form("sigmoid").read(np.array([4, 7]), logits)


class TestLabels:
    VALUES = np.array([[0.1, 3.0, -1.0], [5.0, 0.0, 0.0]], dtype=np.float32)
    TWO = np.arange(2, dtype=np.int32)

    def test_the_best_and_all_probabilities(self):
        outputs = label_form().read(self.TWO, self.VALUES)
        assert set(outputs) == {"probability", "label"}
        powers = np.exp(self.VALUES)
        np.testing.assert_allclose(outputs["probability"], powers / powers.sum(axis=1, keepdims=True), rtol=1e-6)
        assert outputs["label"].tolist() == [[b"schlecht"], [b"good"]]
        assert outputs["label"].dtype == np.object_

    def test_the_best_is_that_of_the_logits_where_probabilities_are_equal(self):
        outputs = label_form("sigmoid").read(self.TWO[:1], np.array([[90.0, 95.0, 91.0]], dtype=np.float32))
        assert outputs["probability"].tolist() == [[1.0, 1.0, 1.0]]
        assert outputs["label"].tolist() == [[b"schlecht"]]

    def test_all_names_if_asked_for(self):
        form = LabelForm(HeadConfig("cls", ("a", "ü"), "softmax"), ClassifyOptions(labels=True))
        outputs = form.read(self.TWO, self.VALUES[:, :2])
        assert outputs["labels"].tolist() == [[b"a", "ü".encode()]] * 2

    def test_a_value_that_is_not_finite_names_its_row(self):
        values = self.VALUES.copy()
        values[0, 2] = np.nan
        with pytest.raises(NonFiniteError, match=r"probability\[3\]"):
            label_form().read(np.array([3, 9]), values)


class TestInRequests:
    def test_rows_that_come_in_any_order_make_one_answer(self, make_sender):
        rows = [np.ones(length, dtype=np.int32) for length in (3, 5, 2)]
        form = LabelForm(HeadConfig("cls", ("a", "b"), "softmax"), ClassifyOptions(labels=True))
        request = UnaryRequest(rows, form, sender := make_sender())
        logits = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]], dtype=np.float32)
        request.deliver(np.array([0, 2], dtype=np.int32), logits[[0, 2]])
        assert not sender.parts
        request.deliver(np.array([1], dtype=np.int32), logits[[1]])
        (part,) = sender.parts
        assert part.token_count.tolist() == [3, 5, 2]
        assert part.outputs["label"].tolist() == [[b"a"], [b"b"], [b"a"]]
        assert part.outputs["labels"].tolist() == [[b"a", b"b"]] * 3
        np.testing.assert_allclose(part.outputs["probability"].sum(axis=1), 1, rtol=1e-6)

    def test_a_prepared_answer_is_filled(self, make_sender):
        request = UnaryRequest([np.ones(2, dtype=np.int32)], score_form("identity"), sender := make_sender())
        request.prepare()
        request.deliver(np.zeros(1, dtype=np.int32), np.array([[4.0]], dtype=np.float32))
        assert sender.parts == sender.prepared
        assert sender.parts[0].outputs["score"].tolist() == [[4.0]]

    def test_parts(self, make_sender):
        rows = [np.ones(1, dtype=np.int32)] * 2
        request = StreamRequest(rows, score_form("identity"), sender := make_sender())
        for row in (1, 0):
            request.deliver(np.array([row], dtype=np.int32), np.array([[row]], dtype=np.float32))
        assert [part.outputs["score"].tolist() for part in sender.parts] == [[[1.0]], [[0.0]]]
        assert sender.finals == [False, True]

    def test_a_row_without_a_score_fails_its_request(self, make_sender):
        request = UnaryRequest([np.ones(2, dtype=np.int32)], score_form("identity"), sender := make_sender())
        request.deliver(np.zeros(1, dtype=np.int32), np.array([[np.nan]], dtype=np.float32))
        assert isinstance(sender.error(), NonFiniteError)
