"""`lazuli health`: whether a server answers, by a real inference of each model.

Takes options and names of models; prints a line a model and returns the exit code. Needs no admin key.
"""

import re
import time
from collections.abc import Callable

from lazuli.launch.addresses import Addresses
from lazuli.launch.options import ServeOptions
from lazuli.launch.probe import ProbeError, Prober
from lazuli.launch.probe_model import ProbeModel, outer_models
from lazuli.launch.rest import RestError
from lazuli.launch.tls import GrpcTls

# gRPC's words when somebody accepts a connection and then hangs up.
_HUNG_UP = re.compile(r"failed to connect.*Socket closed")


def check_health(options: ServeOptions, names: list[str], timeout_s: float, tls: GrpcTls | None = None) -> int:
    """Ask each model once: by the cheapest way, or with TLS by gRPC, too.

    Args:
        options: Of these, the host and the ports count.
        names: The models to ask; empty for all that the server has loaded. Steps are asked through their ensembles.
        timeout_s: For each.
        tls: Of the gRPC port; None for none.

    Returns:
        0 if all answered, or said that they are full, which is a sign of life; else 1.
    """
    addresses = Addresses.of(options)
    prober = Prober(addresses, "", tls)
    asked = f"the server's metrics, which name its models, at {addresses.metrics} (--metrics-port)"
    try:
        names_found = names or prober.measured_models()
        asked = f"the server at {addresses.http} (--http-port)"
        models = prober.find_models(names_found)
    except (RestError, OSError) as error:
        print(f"FAIL  {asked}: {error}")
        return 1
    if not models:
        print("FAIL  no model is loaded")
        return 1
    probe = prober.probe_everywhere if tls else prober.probe
    answers = [_is_well(probe, model, timeout_s) for model in (models if names else outer_models(models))]
    return 0 if all(answers) else 1


def _is_well(probe: Callable[[ProbeModel, float], None], model: ProbeModel, timeout_s: float) -> bool:
    started_s = time.monotonic()
    try:
        probe(model, timeout_s)
    except ProbeError as error:
        hint = "; if its port wants TLS, see --tls-ca" if _HUNG_UP.search(str(error)) else ""
        print(f"{'busy' if error.busy else 'FAIL'}  {error}{hint}")
        return error.busy
    print(f"ok    {model.name} in {1000 * (time.monotonic() - started_s):.0f} ms")
    return True
