"""The services of models with a head: scores of pairs, labels of texts.

Takes unchecked token arrays with a `Sender`; answers come later, from other threads. Knows nothing of Triton.
"""

from typing import Any

import numpy as np

from lazuli.errors import OptionError
from lazuli.heads.answer_forms import LabelForm, ScoreForm
from lazuli.heads.task import CLASSIFY, RERANK
from lazuli.request import AnswerForm, Sender, StreamRequest
from lazuli.scoring.options import ClassifyOptions, RerankOptions
from lazuli.segments import mark_segments
from lazuli.service import EngineService
from lazuli.token_input import split_rows
from lazuli.tokenwise.pair_input import split_pairs
from lazuli.tokenwise.request import PAIRS, PairRequest, PairStreamRequest
from lazuli.tokenwise.score_form import PairScoreForm


class ScoringService(EngineService):
    """What those of both tasks share."""

    def submit(
        self,
        input_ids: np.ndarray,
        attention_mask: np.ndarray,
        token_type_ids: np.ndarray | None,
        options: Any,
        sender: Sender,
        **more: Any,
    ) -> None:
        """Queue one request. The answer goes to `sender`.

        Args:
            input_ids: [N, S] int32.
            attention_mask: [N, S] int8.
            token_type_ids: [N, S] int8: 1 for a token of the second segment, else 0; None for a single segment.
            options: Of the task.
            sender: Gets the answer, perhaps before this returns; not called if it raises.
            more: `may_step`, `may_wait` and `trace` of `_queue`.

        Raises:
            InputError: If the arrays are unusable.
            OverloadedError: If too much waits already.
            ShuttingDownError: If the service is closed.
        """
        rows = split_rows(input_ids, attention_mask, self.engine.limits)
        rows = mark_segments(rows, input_ids, attention_mask, token_type_ids, self.engine.num_segments)
        self._queue(self._request_type(rows, self._choose_form(options), sender), options, **more)

    def _choose_form(self, options: Any) -> AnswerForm:
        raise NotImplementedError


class RerankService(ScoringService):
    """Scores of pairs of a query and a document, read together by a model with a head, or each by itself."""

    task = RERANK

    def submit(
        self,
        input_ids: np.ndarray,
        attention_mask: np.ndarray,
        token_type_ids: np.ndarray | None,
        options: RerankOptions,
        sender: Sender,
        **more: Any,
    ) -> None:
        """See `ScoringService`."""
        if self.engine.program != PAIRS:
            super().submit(input_ids, attention_mask, token_type_ids, options, sender, **more)
            return
        form = PairScoreForm(self.engine.answers.facts, options)
        rows, spans = split_pairs(input_ids, attention_mask, token_type_ids, self.engine.limits)
        kind = PairStreamRequest if self._request_type is StreamRequest else PairRequest
        self._queue(kind(rows, spans, form, sender), options, **more)

    def _choose_form(self, options: RerankOptions) -> ScoreForm:
        assert self.engine.head is not None, "the caller has looked"
        given = [name for name in ("method", "weights") if getattr(options, name) is not None]
        if given:
            raise OptionError(
                f"{given[0]}: this model reads query and document together, and scores them in one way only"
            )
        return ScoreForm(self.engine.head, options)


class ClassifyService(ScoringService):
    """Labels of texts, or of pairs of them."""

    task = CLASSIFY

    def _choose_form(self, options: ClassifyOptions) -> LabelForm:
        assert self.engine.head is not None, "the task has one"
        return LabelForm(self.engine.head, options)
