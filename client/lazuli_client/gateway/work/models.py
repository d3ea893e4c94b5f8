"""The models that the gateway offers, found out from the servers.

Takes the settings and what a server says of itself, returns models by the names that applications use.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from lazuli_client.errors import ConnectionFailedError, ModelNotFoundError, UnavailableError
from lazuli_client.gateway.errors import ApiError, invalid
from lazuli_client.gateway.replicas.replica import Replica
from lazuli_client.gateway.settings import GatewaySettings
from lazuli_client.gateway.work.estimate import TokenEstimate
from lazuli_client.health import probe
from lazuli_client.request import text_request
from lazuli_client.settings import Settings

if TYPE_CHECKING:
    from lazuli_client.gateway.work.tokens import LocalTokenizer

Kind = Literal["embed", "rerank", "classify"]
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

    def __iter__(self) -> Iterator[ServedModel]:
        """The models in the order of the settings."""
        return iter([self._models[name] for name in self._settings.models if name in self._models])

    def find(self, name: str | None, kind: Kind) -> ServedModel:
        """The model that a request names, or the first of the kind.

        Raises:
            ApiError: If there is none, or it is for something else.
        """
        of_kind = [model.name for model in self if model.kind == kind]
        if name is None:
            if of_kind:
                return self._models[of_kind[0]]
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
        """Take down which of the models a server has.

        Raises:
            LazuliError: If it does not answer, or has none.
        """
        found = [name for name in self._settings.models if await self._is_there(replica, name)]
        if not found:
            raise UnavailableError(f"not ready: none of the models {', '.join(self._settings.models)} is there")
        replica.offer(found)

    async def _is_there(self, replica: Replica, name: str) -> bool:
        try:
            inputs, outputs = await replica.wire.tensors_of(name, _DISCOVERY_TIMEOUT_S)
        except ModelNotFoundError:
            return False
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
        """One small inference; of one that had none before, the tokenizer is compared with that which runs here.

        Raises:
            LazuliError: If it fails.
        """
        served = self._models[model]
        if model in self._tokenizers and not replica.is_fit(model):
            await self._check_tokenizer(replica, model)
        request, reading = probe(served.settings, served.kind)
        reading.read(await replica.wire.send(request, _DISCOVERY_TIMEOUT_S), len(request.rows))

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
