"""What a gateway is told once.

Takes the options of the command, returns one checked, frozen object; as JSON it travels to the worker processes. Keys
are not in it: each process reads them itself.
"""

import msgspec

from lazuli_client.retry import MIN_TIMEOUT_S
from lazuli_client.settings import MAX_ROWS, MAX_TIMEOUT_S, Settings

# How the JSON reaches worker processes.
ENVIRONMENT = "LAZULI_GATEWAY_SETTINGS"


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checked settings of a gateway.

    Attributes:
        host: Address to listen on.
        port: Port to listen on.
        workers: Processes.
        replicas: host:port of the gRPC of each server; all serve the same models.
        models: Names of models to offer, as far as the servers have them; the first of a kind answers where a request
            names none.
        aliases: Other names, for applications that insist on theirs.
        tokenizers: Model name to the checkpoint whose tokenizer runs here; the server tokenises for the others.
        max_seq_length: Most tokens of a text, where the tokenizer runs here; None follows the checkpoint.
        api_keys_file: File of keys, one a line.
        cors_origins: Origins whose pages may call the gateway.
        max_body_bytes: Larger bodies are refused.
        max_rows: Most texts, or documents, of a request.
        max_requests: Requests under way; more are refused. Each of several processes has its share.
        requests_per_s: Rate for each key, or for each address where there are no keys; 0 for no limit. All processes
            count together.
        timeout_s: Limit of one request.
        body_timeout_s: A head must be there in this time, and then a body.
        queue_s: How long a request waits for a server that takes it.
        chunk_tokens: A larger request is cut into chunks of so many tokens.
        query_tokens: A request of at most so many tokens is never held back.
        bulk_tokens: Tokens of larger requests that are sent to one server at a time.
        probe_interval_s: Between inferences that watch a server.
        probe_timeout_s: A server that needs longer for one is taken out.
        drain_s: Time for requests under way when stopping.
        tls_cert: PEM file of the certificate chain; with `tls_key`, the gateway speaks HTTPS.
        tls_key: PEM file of its key.
        access_log: Whether each request is logged.

    Raises:
        ValueError: If a value is out of its range; the message names it.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    replicas: tuple[str, ...] = ("127.0.0.1:8001",)
    models: tuple[str, ...] = ("embed", "rerank", "classify")
    aliases: dict[str, str] = {}
    tokenizers: dict[str, str] = {}
    max_seq_length: int | None = None
    api_keys_file: str | None = None
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 16 << 20
    max_rows: int = 2048
    max_requests: int = 512
    requests_per_s: float = 0.0
    timeout_s: float = 60.0
    body_timeout_s: float = 20.0
    queue_s: float = 30.0
    chunk_tokens: int = 8192
    query_tokens: int = 1024
    bulk_tokens: int = 32768
    probe_interval_s: float = 1.0
    probe_timeout_s: float = 3.0
    drain_s: int = 30
    tls_cert: str | None = None
    tls_key: str | None = None
    access_log: bool = True

    def __post_init__(self) -> None:
        for name in ("workers", "max_body_bytes", "max_rows", "max_requests", "chunk_tokens", "bulk_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)}, but it must be at least 1")
        for name in ("query_tokens", "requests_per_s", "drain_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)}, but it must not be negative")
        for name in ("timeout_s", "body_timeout_s", "queue_s", "probe_interval_s", "probe_timeout_s"):
            value = getattr(self, name)
            if not MIN_TIMEOUT_S <= value <= MAX_TIMEOUT_S:  # NaN compares as false
                raise ValueError(f"{name}: {value}, but it must be from {MIN_TIMEOUT_S} to {MAX_TIMEOUT_S:g} seconds")
        _check_names(self)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key: both are needed, or none")
        for address in self.replicas:
            Settings(url=address)

    def client_settings(self, model: str, chunks_in_flight: int) -> Settings:
        """Settings of the client's part for requests to a model."""
        return Settings(
            url=self.replicas[0],
            timeout_s=self.timeout_s,
            retries=0,
            max_in_flight=chunks_in_flight,
            rows_per_request=MAX_ROWS,
            model=model,
        )


def _check_names(settings: GatewaySettings) -> None:
    if not settings.host:  # as an unset variable would have it; it would be every interface
        raise ValueError("host: '', but it must be an address to listen on; 0.0.0.0 is every interface")
    for model in settings.models:
        if not (model.strip() and model.isprintable()):  # as the client asks of a model, too
            raise ValueError(f"models: {model!r}, but it must be the name of a model")
    for name, given in (
        ("replicas", settings.replicas),
        ("tokenizers", settings.tokenizers.values()),
        ("cors_origins", settings.cors_origins),
    ):
        if not all(given):
            raise ValueError(f"{name}: one of them is empty")
    for name, values in (("replicas", settings.replicas), ("models", settings.models)):
        if not values:
            raise ValueError(f"{name}: at least one is needed")
        if len(set(values)) < len(values):
            raise ValueError(f"{name}: {', '.join(values)}: one of them is there twice")
    for name, mapping in (("aliases", settings.aliases.values()), ("tokenizers", settings.tokenizers)):
        for model in mapping:
            if model not in settings.models:
                raise ValueError(f"{name}: {model} is not among the models {', '.join(settings.models)}")
