"""The examples that `lazuli serve` prints: they work when pasted into a shell.

Takes addresses and the names of the served models; returns text. Does not know whether they were tried.
"""

import shlex
import sys
from collections.abc import Collection

from lazuli.launch.addresses import Addresses

_TEXTS = '["A cat sleeps.", "A kitten naps.", "The bill is due."]'


def examples(addresses: Addresses, models: Collection[str]) -> str:
    """One `curl` and one Python example for the doors that are open; empty if neither is."""
    parts = [curl_example(addresses, models), python_example(addresses, models)]
    return "\n\n".join(part for part in parts if part)


def curl_example(addresses: Addresses, models: Collection[str]) -> str:
    """One text over HTTP; both doors answer `/generate`."""
    model = _door(models)
    if model is None:
        return ""
    url = f"http://{addresses.http}/v2/models/{model}/generate"
    return f"""curl -s {url} -H 'Content-Type: application/json' -d '{{"text": "A cat sleeps."}}'"""


def python_example(addresses: Addresses, models: Collection[str]) -> str:
    """Three texts over gRPC: how near they are to each other, or the parts as they come."""
    if "embed" in models:
        body = f"""    vectors = client.embed({_TEXTS}).embeddings
print(vectors @ vectors.T)"""
    elif "embed_stream" in models:
        body = f"""    for part in client.embed_iter({_TEXTS}):
        print(part.indices, part.embeddings.shape)"""
    else:
        return ""
    return f"""{shlex.quote(sys.executable)} - <<'END'
from lazuli_client import LazuliClient
with LazuliClient("{addresses.grpc}") as client:
{body}
END"""


def _door(models: Collection[str]) -> str | None:
    return next((model for model in ("embed", "embed_stream") if model in models), None)
