"""Asks a served model for one real inference.

Takes addresses and a model; raises `ProbeError` unless the answer is whole and finite. Does not know the
models' names or what the numbers mean.
"""

import contextlib
import math
import queue
import re
from collections.abc import Iterable
from typing import Any

from lazuli.launch.addresses import Addresses
from lazuli.launch.probe_model import ProbeModel, probe_model, probe_values, step_names
from lazuli.launch.rest import RestError, call, read_text
from lazuli.launch.tls import GrpcTls


class ProbeError(Exception):
    """A model did not answer as it should.

    Attributes:
        busy: The server refused for load: a sign of life.
        silent: There was no answer in time.
    """

    def __init__(self, message: str, *, busy: bool = False, silent: bool = False) -> None:
        super().__init__(message)
        self.busy = busy
        self.silent = silent


class Prober:
    """Looks up the served models and probes them.

    Args:
        addresses: Where the server is.
        admin_key: Opens the list of models.
        tls: Of the gRPC port; None for none.
    """

    def __init__(self, addresses: Addresses, admin_key: str, tls: GrpcTls | None = None) -> None:
        self._addresses = addresses
        self._admin_key = admin_key
        self._tls = tls

    def is_ready(self) -> bool:
        """Whether the server says that all its models are loaded."""
        try:
            call(self._addresses.http, "GET", "/v2/health/ready", timeout_s=2.0)
        except (RestError, OSError):
            return False
        return True

    def server_version(self) -> str:
        """The version that the server states."""
        return str(call(self._addresses.http, "GET", "/v2")["version"])

    def served_models(self) -> list[ProbeModel]:
        """All models that are loaded."""
        index = call(self._addresses.http, "POST", "/v2/repository/index", {"ready": True}, self._admin_key)
        return self.find_models([entry["name"] for entry in index])

    def find_models(self, names: Iterable[str]) -> list[ProbeModel]:
        """The loaded models of these names."""
        wanted = list(names)
        configs: dict[str, dict[str, Any]] = {}
        left = list(wanted)
        while left:
            name = left.pop()
            if name not in configs:
                configs[name] = self._config(name)
                left += step_names(configs[name])  # they tell whether an ensemble is decoupled
        return [probe_model(configs[name], configs) for name in wanted]

    def measured_models(self) -> list[str]:
        """The names of all models that are loaded, from the metrics: for those who have no admin key."""
        text = read_text(self._addresses.metrics, "/metrics")
        return list(dict.fromkeys(re.findall(r'^nv_inference_request_success\{model="([^"]+)"', text, re.MULTILINE)))

    def is_loaded(self, model: str) -> bool:
        """Whether the server lists it as ready; so it does until somebody unloads it, also if its process has died."""
        index = call(self._addresses.http, "POST", "/v2/repository/index", {"ready": True}, self._admin_key, 5.0)
        return any(entry["name"] == model for entry in index)

    def success_count(self, model: str) -> int:
        """How many requests this model has answered since it was loaded."""
        stats = call(self._addresses.http, "GET", f"/v2/models/{model}/stats", timeout_s=2.0)["model_stats"]
        return sum(int(version["inference_stats"]["success"]["count"]) for version in stats)

    def probe_server(self, timeout_s: float) -> None:
        """Ask the server itself, none of its models. Any answer is one; what else is wrong, its models will tell.

        Raises:
            ProbeError: It says nothing in time.
        """
        try:
            call(self._addresses.http, "GET", "/v2/health/live", timeout_s=timeout_s)
        except TimeoutError as error:
            raise ProbeError(f"the server answers nothing within {timeout_s:g} s", silent=True) from error
        except (RestError, OSError):
            return

    def probe_everywhere(self, model: ProbeModel, timeout_s: float) -> None:
        """Probe over each protocol that the model can answer on."""
        if model.decoupled:
            probe_stream(self._addresses.grpc, model, timeout_s, self._tls)
        else:
            probe_http(self._addresses.http, model, timeout_s)
            probe_grpc(self._addresses.grpc, model, timeout_s, self._tls)

    def probe(self, model: ProbeModel, timeout_s: float) -> None:
        """Probe once, by the cheapest way."""
        if model.decoupled:
            probe_stream(self._addresses.grpc, model, timeout_s, self._tls)
        else:
            probe_http(self._addresses.http, model, timeout_s)

    def _config(self, model: str) -> dict[str, Any]:
        config: dict[str, Any] = call(self._addresses.http, "GET", f"/v2/models/{model}/config")
        return config


def probe_http(address: str, model: ProbeModel, timeout_s: float) -> None:
    """One `infer` over HTTP, in JSON."""
    inputs = [
        {"name": name, "datatype": kind, "shape": shape, "data": probe_values(name, kind, math.prod(shape))}
        for name, kind, shape in model.inputs
    ]
    try:
        answer = call(address, "POST", f"/v2/models/{model.name}/infer", {"inputs": inputs}, timeout_s=timeout_s)
    except RestError as error:
        raise ProbeError(f"{model.name} over HTTP: {error}", busy=error.status in (429, 503)) from error
    except OSError as error:
        silent = isinstance(error, TimeoutError)
        raise ProbeError(f"{model.name} over HTTP: {error}", silent=silent) from error
    for output in answer["outputs"]:
        if output["datatype"].startswith("FP") and not all(map(math.isfinite, output["data"])):
            raise ProbeError(f"{model.name} over HTTP: {output['name']} is not finite")


def probe_grpc(address: str, model: ProbeModel, timeout_s: float, tls: GrpcTls | None = None) -> None:
    """One `ModelInfer` over gRPC."""
    # Imported here: half a second that passes while the server loads its models.
    import tritonclient.grpc as grpc

    with grpc.InferenceServerClient(address, **(tls.channel() if tls else {})) as client:
        try:
            result = client.infer(model.name, _grpc_inputs(model), client_timeout=timeout_s)
        except grpc.InferenceServerException as error:
            raise _grpc_error(model, error) from error
    _check_finite(model, result)


def probe_stream(address: str, model: ProbeModel, timeout_s: float, tls: GrpcTls | None = None) -> None:
    """One request on a gRPC stream, read to its final response."""
    import tritonclient.grpc as grpc

    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = grpc.InferenceServerClient(address, **(tls.channel() if tls else {}))
    finished = False
    try:
        # The header asks for a gRPC status with an error, which tells load from faults.
        client.start_stream(lambda result, error: answers.put((result, error)), headers={"triton_grpc_error": "true"})
        # A stream that is already broken takes nothing; what broke it comes as an answer.
        with contextlib.suppress(grpc.InferenceServerException):
            client.async_stream_infer(model.name, _grpc_inputs(model), enable_empty_final_response=True)
        _read_to_final(model, answers, timeout_s)
        finished = True
    finally:
        # Cancelled after its end, a stream may make Triton 24.10 keep the request for ever, and stop slowly.
        client.stop_stream(cancel_requests=not finished)
        client.close()


def _read_to_final(model: ProbeModel, answers: "queue.Queue[tuple[Any, Any]]", timeout_s: float) -> None:
    while True:
        try:
            result, error = answers.get(timeout=timeout_s)
        except queue.Empty:
            raise ProbeError(f"{model.name} over a gRPC stream: no answer in {timeout_s:g} s", silent=True) from None
        if error is not None:
            raise _grpc_error(model, error) from error
        _check_finite(model, result)
        if result.get_response().parameters["triton_final_response"].bool_param:
            return


def _grpc_error(model: ProbeModel, error: Any) -> ProbeError:
    status = str(error.status() or "")
    return ProbeError(
        f"{model.name} over gRPC: {error.message()}",
        busy=status.endswith("UNAVAILABLE") and "connect" not in error.message(),
        silent=status.endswith("DEADLINE_EXCEEDED"),
    )


def _grpc_inputs(model: ProbeModel) -> list[Any]:
    import numpy as np
    import tritonclient.grpc as grpc
    from tritonclient.utils import triton_to_np_dtype

    inputs = []
    for name, kind, shape in model.inputs:
        tensor = grpc.InferInput(name, shape, kind)
        values = np.array(probe_values(name, kind, math.prod(shape)), dtype=triton_to_np_dtype(kind))
        tensor.set_data_from_numpy(values.reshape(shape))
        inputs.append(tensor)
    return inputs


def _check_finite(model: ProbeModel, result: Any) -> None:
    for output in result.get_response().outputs:
        values = result.as_numpy(output.name)
        if output.datatype.startswith("FP") and not all(map(math.isfinite, values.ravel().tolist())):
            raise ProbeError(f"{model.name} over gRPC: {output.name} is not finite")
