"""What is asked of a model and of its reference alike.

Takes a sample and what a model is for, returns the kind of the answers. Knows nothing of models.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lazuli.heads.task import CLASSIFY, RERANK
from lazuli.verify.answers import LABELS, SCORES
from lazuli.verify.sample import Sample

# How many of a sample's documents, which are all short, make one document of a model that reads chunks in context.
CHUNKS = 2


@dataclass(frozen=True)
class Question:
    """One comparison.

    Attributes:
        sample: The texts.
        task: What the model computes.
        output: What it is asked for, of `lazuli.options.OUTPUTS`; counts only for vectors.
        num_candidates: Documents that are scored for each query; counts only for scores.
        native: Whether the model has a quantiser of its own.
    """

    sample: Sample
    task: str
    output: str = "float32"
    num_candidates: int = 20
    native: bool = False

    @property
    def kind(self) -> str:
        """Of the answers, as `answers.KINDS` has it."""
        return {RERANK: SCORES, CLASSIFY: LABELS}.get(self.task, self.output)

    @cached_property
    def candidates(self) -> np.ndarray:
        """[Q, K] numbers of the documents to be scored for each query."""
        return self.sample.candidates(self.num_candidates)

    def describe(self) -> str:
        """For a person."""
        sizes = f"{len(self.sample.queries)} queries, {len(self.sample.documents)} documents"
        if self.kind == SCORES:
            return f"scores of {self.candidates.size} pairs from {sizes}"
        if self.kind == LABELS:
            return f"labels of {len(self.sample.queries) + len(self.sample.documents)} texts"
        context = " in context" if self.task == "context" else ""
        return f"{self.output} of {sizes}{context}"
