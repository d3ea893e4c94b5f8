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
    "408": "The body did not arrive in time.",
    "413": "The body or the number of rows is larger than is allowed.",
    "429": "Too much for now: see `Retry-After`.",
    "500": "A server, or the gateway, failed.",
    "501": "The model cannot do that.",
    "503": "No server is ready: see `Retry-After`.",
    "504": "The time that the request had is over.",
}
_GETS = {
    "/": ("A page to compare texts on", "text/html"),
    "/docs": ("This document for people", "text/html"),
    "/v1/models": ("The models (OpenAI)", "application/json"),
    "/info": ("What is served, and the limits", "application/json"),
    "/health": ("Whether a server answers", "application/json"),
    "/metrics": ("Figures for Prometheus", "text/plain"),
}


def document(endpoints: Sequence[Endpoint[Any]]) -> dict[str, Any]:
    """The document."""
    types = [kind for endpoint in endpoints for kind in (endpoint.body, endpoint.answer)]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for endpoint, body, answer in zip(endpoints, schemas[::2], schemas[1::2], strict=True):
        paths[endpoint.path] = {"post": _operation(endpoint, body, answer)}
    for path, (summary, kind) in _GETS.items():
        paths.setdefault(path, {})["get"] = {"summary": summary, "responses": _responses({kind: {}}, get=path)}
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
    errors = {"401": _ERRORS["401"], "429": _ERRORS["429"], "503": _ERRORS["503"]} if get else _ERRORS
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "200": {"description": "The answer.", "content": dict(content)},
        **{status: {"description": text, "content": error} for status, text in errors.items()},
    }
