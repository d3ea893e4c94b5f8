"""The dashboard and the alerts ask for metrics that the server has."""

import json
import re
from pathlib import Path

import pytest
import yaml

from lazuli.graph import GraphCounters
from lazuli.metrics.engine import EngineMetrics, EngineState
from lazuli.metrics.recorder import EngineRecorder, TokenizerRecorder, all_outcomes
from lazuli.metrics.tokenizer import TokenizerMetrics

DOCKER = Path(__file__).resolve().parents[3] / "docker"
MONITORING = DOCKER / "monitoring"
DASHBOARD = json.loads((MONITORING / "grafana" / "lazuli.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))
EXPRESSIONS = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])),
    *(rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]),
]


@pytest.fixture(scope="module")
def known():
    """The names of all metrics, with their labels and the values of those."""
    engine = EngineMetrics(EngineRecorder(), lambda: EngineState(0, 0.0, GraphCounters()))
    samples = [*engine.collect(), *TokenizerMetrics(TokenizerRecorder()).collect()]
    known = {"lazuli_published_timestamp_seconds": {}}
    for sample in samples:
        labels = known.setdefault(sample.family.name, {})
        for label, value in sample.labels:
            labels.setdefault(label, set()).add(value)
    return known


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_metrics_and_labels_exist(known, expression):
    names = re.findall(r"\b(lazuli_\w+)(?:\{([^}]*)\})?", expression)
    assert names or "up{" in expression
    for name, selector in names:
        assert name in known
        for label, operator, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', selector):
            if label != "model":
                assert label in known[name]
                assert operator == "!=" or set(value.split("|")) <= known[name][label]


def test_every_metric_is_on_the_dashboard_or_in_an_alert(known):
    shown = set(re.findall(r"\blazuli_\w+", " ".join(EXPRESSIONS)))
    left_out = {"lazuli_graphs", "lazuli_graph_capture_seconds_total", "lazuli_graph_failures_total"}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known}
    assert families - {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} == left_out


def test_panels_have_their_own_place_and_number():
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    cells = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in cells
                assert x < 24
                cells.add((x, y))


def test_faults_that_page_are_kinds_of_errors():
    rule = next(rule for group in ALERTS["groups"] for rule in group["rules"] if rule["alert"] == "LazuliFaults")
    kinds = re.search(r'outcome=~"([^"]*)"', rule["expr"])[1].split("|")
    assert set(kinds) <= set(all_outcomes())


def test_compose_mounts_files_that_exist():
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]
    files = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])]
    mounted = [DOCKER / name for name in files if name.startswith("./")]
    assert len(mounted) == 5
    for path in mounted:
        assert path.is_file()


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda text: text, []),
        (lambda text: text.replace('"showPoints": "never"', '"shownPoints": "never"', 1), ["shownPoints"]),
        (lambda text: text.replace('"gridPos"', '"grid"', 1), ["grid"]),
        (lambda text: text.replace('"allValue"', '"allvalue"'), ["allvalue"]),
    ],
)
def test_grafanas_own_schema_knows_every_field(change, lost):
    """Read into Grafana's types and written again, a field of another name or place is lost."""
    dashboard = json.loads(change(json.dumps(DASHBOARD)))
    assert list(lost_fields(dashboard, read_by_grafana(dashboard))) == lost


def lost_fields(before, after):
    """The names of fields that are gone or have another value; what is new are defaults."""
    for name, value in before.items():
        pairs = zip(value, after.get(name, []), strict=False) if isinstance(value, list) else [(value, after.get(name))]
        if name not in after or (isinstance(value, list) and len(value) != len(after[name])):
            yield name
            continue
        for old, new in pairs:
            if isinstance(old, dict) and isinstance(new, dict):
                yield from lost_fields(old, new)
            elif old != new:
                yield name


def read_by_grafana(dashboard):
    pytest.importorskip("grafana_foundation_sdk")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))


def test_the_datasource_is_the_one_of_the_panels():
    datasource = yaml.safe_load((MONITORING / "grafana" / "datasource.yml").read_text(encoding="utf-8"))
    uids = {panel["datasource"]["uid"] for panel in DASHBOARD["panels"] if "datasource" in panel}
    assert uids == {datasource["datasources"][0]["uid"]}


def test_ports_are_open_to_this_machine_only():
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for service in services.values():
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:")
