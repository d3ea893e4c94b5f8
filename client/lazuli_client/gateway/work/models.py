"""The models that the gateway offers, found out from the servers.

Takes the settings and what a server says of itself, returns models by the names that applications use.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from lazuli_client.errors import (
    ConnectionFailedError,
    DeadlineError,
    InvalidInputError,
    LazuliError,
    ModelNotFoundError,
    TlsError,
    UnavailableError,
    UnsupportedError,
)
from lazuli_client.gateway.errors import ApiError, invalid
from lazuli_client.gateway.replicas.replica import Replica
from lazuli_client.gateway.settings import GatewaySettings
from lazuli_client.gateway.work.estimate import TokenEstimate
from lazuli_client.health import PROBE_TEXT, probe
from lazuli_client.options import EmbedOptions
from lazuli_client.request import text_request, text_requests
from lazuli_client.settings import Settings

if TYPE_CHECKING:
    from lazuli_client.gateway.work.tokens import LocalTokenizer

Kind = Literal["embed", "rerank", "classify"]
Output = Literal["dense", "sparse"]
# They tell of the server, all others of the model that was asked for.
_OF_SERVER = (ConnectionFailedError, DeadlineError, TlsError)
_DISCOVERY_TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedModel:
    """A model.

    Attributes:
        name: Its name on the servers.
        kind: What it is for.
        settings: For requests to it.
        tokenizer: Its tokenizer, if texts are tokenised here.
        estimate: Tokens of its texts where they are not.
    """

    name: str
    kind: Kind
    settings: Settings
    tokenizer: "LocalTokenizer | None" = None
    estimate: TokenEstimate = field(default_factory=TokenEstimate)

    def settings_for(self, workload: str | None, chars_per_request: int | None = None) -> Settings:
        """Settings of one request."""
        if workload is None and chars_per_request is None:
            return self.settings
        chars = chars_per_request or self.settings.chars_per_request
        return replace(self.settings, workload=workload, chars_per_request=chars)


class Models:
    """All models that a server was found to have."""

    def __init__(self, settings: GatewaySettings) -> None:
        """Load the tokenizers that run here.

        Raises:
            ValueError: If one cannot be loaded.
        """
        self._settings = settings
        self._tokenizers = {
            name: _load_tokenizer(checkpoint, settings.max_seq_length)
            for name, checkpoint in settings.tokenizers.items()
        }
        self._models: dict[str, ServedModel] = {}
        self._left_out: set[str] = set()
        self._outputs: dict[str, set[Output]] = {}

    def __iter__(self) -> Iterator[ServedModel]:
        """The models in the order of the settings."""
        return iter([self._models[name] for name in self._settings.models if name in self._models])

    def find(self, name: str | None, kind: Kind, output: Output | None = None) -> ServedModel:
        """The model that a request names, or the first of the kind; with `output`, the first that has such vectors.

        Raises:
            ApiError: If there is none, or it is for something else.
        """
        of_kind = [model.name for model in self if model.kind == kind]
        if name is None:
            if of_kind:
                # Where it is not known yet, or none has it, the server says what is wrong.
                having = [one for one in of_kind if output is None or output in self._outputs.get(one, {output})]
                return self._models[(having or of_kind)[0]]
            raise self._missing(f"there is no model to {kind}")
        found = self._models.get(self._settings.aliases.get(name, name))
        if found is None:
            raise self._missing(f"model: {name!r} is not known; there are {', '.join(of_kind) or 'none'} to {kind}")
        if found.kind != kind:
            raise invalid(f"model: {name!r} is to {found.kind}, not to {kind}", "model")
        return found

    def _missing(self, message: str) -> ApiError:
        if not self._models:
            return ApiError(503, "no server has answered yet", "no_server", retry_after_s=1)
        return ApiError(404, message, "model_not_found", field="model")

    async def discover(self, replica: Replica) -> None:
        """Take down which of the models a server has; one that is away for now is asked again soon.

        Raises:
            LazuliError: If it does not answer, or has none that is ready.
        """
        found, away = list[str](), dict[str, LazuliError]()
        for name in self._settings.models:
            try:
                if await self._is_there(replica, name):
                    found.append(name)
            except ModelNotFoundError:
                pass
            except _OF_SERVER:
                raise
            except LazuliError as error:
                away[name] = error
        if not found:
            said = "".join(f"; {error}" for error in list(away.values())[:1])
            raise UnavailableError(f"not ready: none of the models {', '.join(self._settings.models)} is there{said}")
        replica.offer([name for name in self._settings.models if name in found or name in away])

    async def _is_there(self, replica: Replica, name: str) -> bool:
        inputs, outputs = await replica.wire.tensors_of(name, _DISCOVERY_TIMEOUT_S)
        kind = _kind(inputs, outputs)
        if kind is None:
            if name not in self._left_out:
                _log.warning("model %s is left out: it is not one to embed, rerank or classify", name)
            self._left_out.add(name)
            return False
        if name not in self._models or self._models[name].kind != kind:
            settings = self._settings.client_settings(name, max(4, 2 * len(self._settings.replicas)))
            self._models[name] = ServedModel(name, kind, settings, self._tokenizers.get(name))
        return True

    async def ask(self, replica: Replica, model: str) -> None:
        """One small inference; of one that had none before, also its outputs, and the tokenizer if it runs here, too.

        Raises:
            LazuliError: If it fails.
        """
        served = self._models.get(model)
        if served is None:  # no server has told what it is for
            raise UnavailableError(f"not ready: the server does not tell what {model} is")
        is_new = not replica.is_fit(model)
        if model in self._tokenizers and is_new:
            await self._check_tokenizer(replica, model)
        request, reading = probe(served.settings, served.kind)
        answer = reading.read(await replica.wire.send(request, _DISCOVERY_TIMEOUT_S), len(request.rows))
        if served.kind == "embed" and (is_new or model not in self._outputs):
            await self._take_down_outputs(replica, served, is_dense=bool(answer.embeddings.shape[1]))

    async def _take_down_outputs(self, replica: Replica, served: ServedModel, *, is_dense: bool) -> None:
        """A server's metadata names the tensors of all models alike, so only a question tells."""
        outputs: set[Output] = {"dense"} if is_dense else set()
        request = next(text_requests(served.settings, [PROBE_TEXT], EmbedOptions(output="sparse")))
        try:
            await replica.wire.send(request, _DISCOVERY_TIMEOUT_S)
            outputs.add("sparse")
        except (InvalidInputError, UnsupportedError):
            pass
        except LazuliError:  # what it has to do for others tells nothing of its outputs
            return
        self._outputs[served.name] = outputs

    async def _check_tokenizer(self, replica: Replica, name: str) -> None:
        steps = "tokenizer" if name == "embed" else f"{name}.tokenizer"
        for row, text in enumerate(self._tokenizers[name].check_texts):
            request = text_request(steps, [text], {"truncate": "end"}, range(1))
            outputs = await replica.wire.send(request, _DISCOVERY_TIMEOUT_S)
            if not self._tokenizers[name].equals(row, outputs["input_ids"][0]):
                raise ConnectionFailedError(
                    f"its tokenizer of {name} is not the one of {self._settings.tokenizers[name]}, or has another limit"
                )


def _load_tokenizer(checkpoint: str, max_seq_length: int | None) -> "LocalTokenizer":
    # Imported here: without a tokenizer, the gateway needs none of the engine's packages.
    try:
        from lazuli_client.gateway.work.tokens import LocalTokenizer
    except ImportError as error:
        raise ValueError(f"tokenizer: {error.name} is not installed; `pip install 'lazuli[engine]'`") from None
    return LocalTokenizer(checkpoint, max_seq_length)


def _kind(inputs: frozenset[str], outputs: frozenset[str]) -> Kind | None:
    if {"query", "document"} <= inputs and "score" in outputs:
        return "rerank"
    if inputs == {"text"} and "label" in outputs:
        return "classify"
    return "embed" if inputs == {"text"} and "token_count" in outputs else None
