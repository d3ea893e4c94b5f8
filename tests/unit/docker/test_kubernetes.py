"""The manifests: against Kubernetes' schemas, against each other, and against what the server does."""

import re
import shlex

import kubernetes_validate
import pytest
import yaml

from lazuli.engine import _CPU_TOKEN_BUDGET, _GPU_TOKEN_BUDGET
from lazuli.graph import GraphCounters
from lazuli.launch.command import SHM_REGION_BYTES
from lazuli.launch.process import _STOP_MARGIN_S
from lazuli.launch.repository import built_in_repository, count_processes
from lazuli.metrics.engine import EngineMetrics, EngineState
from lazuli.metrics.recorder import EngineRecorder
from rehearse import CONTEXT, Step, read_steps

FOLDER = CONTEXT / "docker" / "kubernetes"
OVERLAYS = ("cpu", "gpu")
# The oldest with what is used here (`sleep` before a stop), and the newest whose schemas there are.
VERSIONS = ("1.30", "1.37")
_KILL_S = 5
_UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request, tool):
    """Name of a deployment, and its objects by kind."""
    objects = yaml.safe_load_all(tool("kubectl", "kustomize", FOLDER / request.param))
    return request.param, {one["kind"]: one for one in objects}


@pytest.fixture
def objects(overlay):
    return overlay[1]


@pytest.fixture
def pod(objects):
    return objects["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture
def container(pod):
    (container,) = pod["containers"]
    return container


@pytest.fixture(scope="module")
def inference_service(read_yaml):
    return read_yaml("kubernetes/kserve/inference-service.yaml")


def options_of(container, served_options):
    """What `lazuli serve` makes of the container's command."""
    shell, flag, script = container["args"]
    assert (shell, flag) == ("/bin/sh", "-c")
    return served_options(shlex.split(script.split("exec", 1)[1]))


def in_bytes(quantity):
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()
    return int(number) * _UNITS[unit]


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_as_kubernetes_wants_them(objects, version):
    kinds = {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy"}
    assert set(objects) == kinds
    for one in objects.values():
        kubernetes_validate.validate(one, version, strict=True)


def test_selectors_select_the_pods(objects, read_yaml):
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    spread = objects["Deployment"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [one["labelSelector"]["matchLabels"] for one in spread] == [labels]
    assert read_yaml("kubernetes/monitoring/pod-monitor.yaml")["spec"]["selector"]["matchLabels"] == labels


def test_ports_are_those_of_the_command(objects, container, served_options, read_yaml):
    options = options_of(container, served_options)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "http": options.http_port,
        "grpc": options.grpc_port,
        "metrics": options.metrics_port,
        "health": options.health_port,
    }
    named = [port["targetPort"] for port in objects["Service"]["spec"]["ports"]]
    named += [port["port"] for rule in objects["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]]
    named += [end["port"] for end in read_yaml("kubernetes/monitoring/pod-monitor.yaml")["spec"]["podMetricsEndpoints"]]
    assert set(named) <= set(ports)
    annotations = objects["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert int(annotations["prometheus.io/port"]) == options.metrics_port


def test_the_command_is_that_of_the_image(container, served_options):
    steps = read_steps((CONTEXT / "docker" / "Dockerfile").read_text(encoding="utf-8"))
    command = next(step for step in steps if step.kind == "CMD")
    script = container["args"][2]
    assert script == f"rm -f /dev/shm/lazuli_* && exec {shlex.join(Step('CMD', command.text).words())}"
    assert options_of(container, served_options).host == "0.0.0.0"


def test_a_start_may_take_as_long_as_the_command_waits(container, served_options):
    probe = container["startupProbe"]
    patience_s = probe["periodSeconds"] * probe["failureThreshold"]
    assert patience_s > options_of(container, served_options).start_timeout_s


def test_probes_ask_the_supervisor(container):
    paths = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {probe["port"] for probe in paths.values()} == {"health"}
    assert [probe["path"] for probe in paths.values()] == ["/ready", "/ready", "/live"]


def test_a_stop_has_time_for_requests_in_flight(pod, container, served_options):
    needed_s = (
        container["lifecycle"]["preStop"]["sleep"]["seconds"]
        + options_of(container, served_options).exit_timeout_s
        + _STOP_MARGIN_S
        + _KILL_S
    )
    assert pod["terminationGracePeriodSeconds"] >= needed_s


def test_shared_memory_is_enough_and_within_the_memory_limit(pod, container):
    """The sum of README.md: a region for each process, and room for 32 of the largest requests of common models."""
    (volume,) = [one["emptyDir"] for one in pod["volumes"] if one["name"] == "shared-memory"]
    assert volume["medium"] == "Memory"
    regions = count_processes([built_in_repository()]) * SHM_REGION_BYTES
    requests, rows, tokens, dimensions = 32, 1024, 512, 1024
    needed = regions + 2 * requests * rows * (14 * tokens + 4 * dimensions)
    assert needed <= in_bytes(volume["sizeLimit"])
    assert in_bytes(volume["sizeLimit"]) < in_bytes(container["resources"]["limits"]["memory"]) / 2


def test_what_is_written_to_is_mounted(pod, container):
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"/dev/shm", "/var/lib/lazuli", "/tmp"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_the_pod_may_do_no_more_than_it_needs(pod, container):
    """What the profile `restricted` of the Pod Security Standards asks for, and no token."""
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_the_server_may_call_nobody_and_clients_need_the_label(objects):
    policy = objects["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    clients, monitoring = policy["ingress"]
    for one in clients["from"]:
        assert one["podSelector"]["matchLabels"] == {"lazuli-client": "true"}  # and not the label of the server
    assert [port["port"] for port in monitoring["ports"]] == ["metrics"]


def test_a_gpu_is_asked_for_in_one_of_them_only(overlay, container):
    name, objects = overlay
    resources = container["resources"]
    gpus = resources["limits"].get("nvidia.com/gpu"), resources["requests"].get("nvidia.com/gpu")
    assert gpus == ((1, 1) if name == "gpu" else (None, None))
    assert container["image"].endswith(":cuda" if name == "gpu" else ":cpu")
    # Without a second GPU, a pod more than there are would wait for ever.
    surge = objects["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    assert surge == (0 if name == "gpu" else 1)


def test_pods_are_added_by_a_metric_that_there_is(overlay, read_yaml):
    name, objects = overlay
    scaler = objects["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == objects["Deployment"]["metadata"]["name"]
    assert "replicas" not in objects["Deployment"]["spec"]
    (metric,) = (one["pods"] for one in scaler["metrics"])
    metrics = EngineMetrics(EngineRecorder(), lambda: EngineState(0, 0.0, GraphCounters())).collect()
    assert metric["metric"]["name"] in {sample.family.name for sample in metrics}
    (rule,) = read_yaml("kubernetes/monitoring/adapter-values.yaml")["rules"]["custom"]
    assert rule["seriesQuery"].startswith(f"{metric['metric']['name']}{{")
    budget = _GPU_TOKEN_BUDGET if name == "gpu" else _CPU_TOKEN_BUDGET
    assert int(metric["target"]["averageValue"]) == 2 * budget


def test_the_budget_for_disruptions_leaves_a_pod(objects):
    least = objects["HorizontalPodAutoscaler"]["spec"]["minReplicas"]
    assert least - objects["PodDisruptionBudget"]["spec"]["maxUnavailable"] >= 1


def test_settings_are_variables_that_the_repository_reads(objects):
    used = set()
    for config in built_in_repository().glob("*/config.pbtxt"):
        used |= set(re.findall(r"\$\{(\w+):-", config.read_text(encoding="utf-8")))
    assert set(objects["ConfigMap"]["data"]) <= used


def test_the_inference_service_is_a_pod_as_kubernetes_wants_it(inference_service):
    predictor = dict(inference_service["spec"]["predictor"])
    assert 1 <= predictor.pop("minReplicas") <= predictor.pop("maxReplicas")
    for version in VERSIONS:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lazuli"}, "spec": predictor}
        kubernetes_validate.validate(pod, version, strict=True)


def test_the_inference_service_is_the_same_container(inference_service, tool):
    text = tool("kubectl", "kustomize", FOLDER / "gpu")
    objects = {one["kind"]: one for one in yaml.safe_load_all(text)}
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    predictor = inference_service["spec"]["predictor"]
    for key in ("securityContext", "terminationGracePeriodSeconds", "volumes", "enableServiceLinks"):
        assert predictor[key] == pod[key]
    (ours,), (theirs,) = pod["containers"], predictor["containers"]
    for key in ("args", "image", "lifecycle", "resources", "securityContext", "volumeMounts"):
        assert theirs[key] == ours[key]
    numbers = {port["name"]: port["containerPort"] for port in ours["ports"]}
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        expected = ours[name] | {"httpGet": ours[name]["httpGet"] | {"port": numbers["health"]}}
        assert theirs[name] == expected
    # The names by which KServe knows the container and its port.
    assert theirs["name"] == "kserve-container"
    assert [(port["name"], port["containerPort"]) for port in theirs["ports"]] == [("http1", numbers["http"])]
