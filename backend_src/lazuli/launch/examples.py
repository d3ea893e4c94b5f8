"""The examples that are printed for a served model: they work when pasted into a shell.

Takes addresses and names of models; returns text. Does not know whether they were tried.
"""

import shlex
import sys
from collections.abc import Collection

from lazuli.launch.addresses import Addresses
from lazuli.launch.options import Door
from lazuli.repository.names import ModelNames, Task, models_among

_TEXTS = '["A cat sleeps.", "A kitten naps.", "The bill is due."]'


def examples(addresses: Addresses, folders: Collection[str]) -> str:
    """One `curl` and one Python example for one of the served models, the built-in one if it is there; else empty.

    Args:
        addresses: Where the server is.
        folders: Names of all that the server has loaded.
    """
    models = sorted(models_among(folders), key=lambda model: not model.is_built_in)
    if not models:
        return ""
    doors = models[0].doors_among(folders)
    return "\n\n".join([curl_example(addresses, models[0], doors), python_example(addresses, models[0], doors)])


def curl_example(addresses: Addresses, model: ModelNames, doors: Collection[Door]) -> str:
    """One text or pair over HTTP; both doors answer `/generate`."""
    name = model.door(Door.UNARY if Door.UNARY in doors else Door.STREAM)
    url = f"http://{addresses.http}/v2/models/{name}/generate"
    body = '{"text": "A cat sleeps."}'
    if model.task is Task.RERANK:
        body = '{"query": "Who sleeps?", "document": "A cat sleeps."}'
    elif model.task is Task.CONTEXT:
        body = '{"text": "A cat sleeps.", "document": 0}'
    return f"""curl -s {url} -H 'Content-Type: application/json' -d '{body}'"""


def python_example(addresses: Addresses, model: ModelNames, doors: Collection[Door]) -> str:
    """Three texts over gRPC: how near they are to each other or to a query, their labels, or the parts as they come."""
    if model.task is Task.RERANK:
        body = f"""    for hit in client.rerank("Who sleeps?", {_TEXTS}):
        print(hit.index, hit.score)"""
    elif model.task is Task.CLASSIFY:
        body = f"""    print(client.classify({_TEXTS}).labels)"""
    elif model.task is Task.CONTEXT:
        body = f"""    (vectors,) = client.embed_context([{_TEXTS}])
print(vectors.embeddings @ vectors.embeddings.T)"""
    elif Door.UNARY in doors:
        body = f"""    vectors = client.embed({_TEXTS}).embeddings
print(vectors @ vectors.T)"""
    else:
        body = f"""    for part in client.embed_iter({_TEXTS}):
        print(part.indices, part.embeddings.shape)"""
    name = "" if model.is_built_in else f', model="{model.name}"'
    return f"""{shlex.quote(sys.executable)} - <<'END'
from lazuli_client import LazuliClient
with LazuliClient("{addresses.grpc}"{name}) as client:
{body}
END"""
