"""The OpenAPI document, made from the messages that the endpoints decode.

Takes the endpoints, returns the document. What is no endpoint (`/health`, `/metrics`) is described here.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from lazuli_client.gateway.apis.endpoint import Endpoint
from lazuli_client.gateway.guard.headers import LEAST_TIMEOUT_S

# What the guard and the servers can say at any endpoint.
_ERRORS = {
    "400": "The request is wrong; the message names the field, the row, the value and the limit.",
    "401": "The API key is missing or wrong.",
    "404": "There is no such model.",
    "408": "The request did not arrive in time.",
    "413": "The body or the number of rows is larger than is allowed.",
    "415": "The body is compressed.",
    "429": "Too much for now: see `Retry-After`.",
    "500": "A server, or the gateway, failed.",
    "501": "The model cannot do that.",
    "503": "No server is ready: see `Retry-After`.",
    "504": "The time that the request had is over.",
}
_MODEL = {"description": "Name of a model.", "schema": {"type": "string"}, "example": "embed"}
_GETS: Mapping[str, tuple[str, str, tuple[Mapping[str, Any], ...]]] = {
    "/": ("A page to compare texts on", "text/html", ()),
    "/docs": ("This document for people", "text/html", ()),
    "/v1/models": ("The models (OpenAI)", "application/json", ()),
    "/v1/models/{model}": (
        "One of them (OpenAI)",
        "application/json",
        ({"name": "model", "in": "path", "required": True, **_MODEL},),
    ),
    "/info": ("What is served, and the limits", "application/json", ()),
    "/health": (
        "Whether a model has a server that answers, or the named one has",
        "application/json",
        ({"name": "model", "in": "query", **_MODEL},),
    ),
    "/metrics": ("Figures for Prometheus", "text/plain", ()),
}


def document(endpoints: Sequence[Endpoint[Any]]) -> dict[str, Any]:
    """The document."""
    types = [kind for endpoint in endpoints for kind in (endpoint.body, endpoint.answer)]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for endpoint, body, answer in zip(endpoints, schemas[::2], schemas[1::2], strict=True):
        paths[endpoint.path] = {"post": _operation(endpoint, body, answer)}
    for path, (summary, kind, parameters) in _GETS.items():
        operation = {"summary": summary, "parameters": parameters, "responses": _responses({kind: {}}, get=path)}
        paths.setdefault(path, {})["get"] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lazuli gateway", "version": version("lazuli")},
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": {"type": "object"}},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint[Any], body: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": body, "example": endpoint.example}}
    return {
        "summary": endpoint.summary,
        "parameters": [
            {
                "name": "X-Request-Timeout",
                "in": "header",
                "description": "Seconds after which the answer is of no more use.",
                "schema": {"type": "number", "minimum": LEAST_TIMEOUT_S},
            }
        ],
        "requestBody": {"required": True, "content": content},
        "responses": _responses({"application/json": {"schema": answer}}),
    }


def _responses(content: Mapping[str, Any], get: str | None = None) -> dict[str, Any]:
    errors = _ERRORS
    if get:
        errors = {code: _ERRORS[code] for code in ("401", *(["404"] if _GETS[get][2] else []), "429", "503")}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "200": {"description": "The answer.", "content": dict(content)},
        **{status: {"description": text, "content": error} for status, text in errors.items()},
    }
