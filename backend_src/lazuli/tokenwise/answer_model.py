"""Which answers a model offers, dense vectors and outputs of single tokens alike.

Takes the options of a request, returns the form of its answer. Knows nothing of devices.
"""

from dataclasses import dataclass, replace

from lazuli.errors import OptionError
from lazuli.options import ENCODINGS, RequestOptions, refuse_split_of_tokens
from lazuli.outputs.dense import DenseForm, DenseModel
from lazuli.tokenwise.answer_size import AnswerLimit
from lazuli.tokenwise.facts import DENSE, TokenFacts
from lazuli.tokenwise.form import TokenForm


@dataclass(frozen=True)
class AnswerModel:
    """What can be asked of a model.

    Attributes:
        facts: What its checkpoint has.
        dense: Of its vectors, which count only if the first says that there are any.
        limit: How large the outputs of single tokens may make an answer; None for any size.
    """

    facts: TokenFacts
    dense: DenseModel
    limit: AnswerLimit | None = None

    def choose(self, options: RequestOptions) -> DenseForm | TokenForm:
        """The form that a request asks for; one that does not say gets what the model has first.

        Raises:
            OptionError: If the model cannot do that.
        """
        outputs = options.output or (() if self.facts.dense else self.facts.outputs[:1])
        wanted = [name for name in outputs if name not in ENCODINGS]
        if not wanted and self.facts.dense:
            return self.dense.choose(options)
        refuse_split_of_tokens(options.truncate, outputs)
        encoding = options.encoding
        for name in (*wanted, *([DENSE] if encoding is not None else [])):
            if name not in self.facts.outputs:
                raise OptionError(f"output: {name}: the model has no such output, it has {self._names()}")
        if encoding is None and options.dimensions is not None:
            raise OptionError("dimensions: only dense vectors can be cut, and output names none")
        dense = self.dense.choose(replace(options, output=(encoding,))) if encoding is not None else None
        is_query = "query" in (options.input_type, options.prompt_name)
        return TokenForm(wanted, dense, is_query=is_query, limit=self.limit)

    def _names(self) -> str:
        return ", ".join(self.facts.outputs)
