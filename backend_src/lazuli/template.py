"""What is put around a text before it is tokenised.

Takes a text and the options of its request, returns the text that the model shall read. Knows nothing of tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lazuli.config import DEFAULT_INSTRUCTION_TEMPLATE
from lazuli.errors import ConfigError, OptionError
from lazuli.options import RequestOptions, shorten

_MOST_NAMES = 20  # in an error message
# What checkpoints call their prompts for an input type; of several, the first counts.
INPUT_TYPE_PROMPTS = {
    "query": ("query", "search_query", "s2p_query", "retrieval.query", "Retrieval-query"),
    "document": ("document", "passage", "search_document", "retrieval.passage", "Retrieval-document"),
}


@dataclass(frozen=True)
class Template:
    """The prompts of a model.

    Attributes:
        prompts: Prompt name to the string put before each text.
        default_prompt_name: The prompt for requests that name neither a prompt, an instruction nor an input type.
        instruction_template: Holds `{instruction}` and `{text}` once each.
    """

    prompts: Mapping[str, str]
    default_prompt_name: str | None = None
    instruction_template: str = DEFAULT_INSTRUCTION_TEMPLATE

    def __post_init__(self) -> None:
        if self.default_prompt_name is not None and self.default_prompt_name not in self.prompts:
            raise ConfigError(f"default_prompt_name: {self.default_prompt_name!r} is not among {self._names()}")

    def around(self, options: RequestOptions) -> tuple[str, str]:
        """The strings before and after each text of a request.

        Raises:
            OptionError: If the prompt is not known.
        """
        if options.instruction is not None:
            before, after = self.instruction_template.split("{text}")
            instruction = options.instruction
            return before.replace("{instruction}", instruction), after.replace("{instruction}", instruction)
        if options.input_type is not None:
            return self._of_input_type(options.input_type), ""
        name = options.prompt_name if options.prompt_name is not None else self.default_prompt_name
        if name is None:
            return "", ""
        if name not in self.prompts:
            raise OptionError(f"prompt_name: {shorten(name)} is not known; this model has {self._names()}")
        return self.prompts[name], ""

    def _of_input_type(self, input_type: str) -> str:
        """The prompt, or none: many models take queries and documents alike, or only the former with a prompt."""
        known = [name for name in INPUT_TYPE_PROMPTS[input_type] if name in self.prompts]
        return self.prompts[known[0]] if known else ""

    def _names(self) -> str:
        names = [shorten(name) for name in sorted(self.prompts)]
        more = [f"and {len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
        return ", ".join([*names[:_MOST_NAMES], *more]) or "no prompts"
