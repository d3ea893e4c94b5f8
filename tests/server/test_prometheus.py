"""The dashboard over a real Prometheus that watches a real server; runs where `prometheus` and `promtool` are."""

import json
import math
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from lazuli.launch.preflight import free_ports

from .wire import grpc_infer, grpc_stream

MONITORING = Path(__file__).resolve().parents[2] / "docker" / "monitoring"
DASHBOARD = json.loads((MONITORING / "grafana" / "lazuli.json").read_text(encoding="utf-8"))
PANELS = [
    pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']}-{target['refId']}".replace(" ", "-"))
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
]
SECONDS_WATCHED = 15

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="there is no Prometheus on this machine"
)


def test_the_rules_are_valid_and_fire_when_they_should():
    subprocess.run(["promtool", "check", "rules", "alerts.yml"], cwd=MONITORING, check=True)
    subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=MONITORING, check=True)
    subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=MONITORING, check=True)


@pytest.fixture(scope="module")
def prometheus(server, tmp_path_factory):
    """The address of a Prometheus that has watched the server at work for a while."""
    folder = tmp_path_factory.mktemp("prometheus")
    text = (MONITORING / "prometheus.yml").read_text(encoding="utf-8")
    intervals = (
        ("scrape_interval: 5s", "scrape_interval: 1s"),
        ("evaluation_interval: 15s", "evaluation_interval: 2s"),
    )
    for written, here in (("lazuli:8002", server.metrics), *intervals):
        assert written in text
        text = text.replace(written, here)
    (folder / "prometheus.yml").write_text(text, encoding="utf-8")
    shutil.copy(MONITORING / "alerts.yml", folder)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with (
        (folder / "prometheus.log").open("w") as log,
        subprocess.Popen([*command, f"--web.listen-address={address}"], cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            work(server, SECONDS_WATCHED)
            yield address
        finally:
            process.terminate()


def work(server, seconds):
    """Requests of every outcome that a test can bring about."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        grpc_infer(server, ["one", "two words", "word " * 300], truncate="end")
        grpc_stream(server, ["one", "two words"])
        with pytest.raises(InferenceServerException):
            grpc_infer(server, ["word " * 300])
        time.sleep(0.05)


def ask(address, path, **parameters):
    url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]


def query(address, expression):
    """The values that an instant query returns, by their labels."""
    result = ask(address, "query", query=expression)["result"]
    return [(row["metric"], float(row["value"][1])) for row in result]


@pytest.mark.parametrize(("expression", "legend"), PANELS)
def test_each_panel_has_data_and_names_for_it(prometheus, expression, legend):
    """Asked as Grafana does: for a range, with its variables filled in."""
    expression = expression.replace("$__rate_interval", "10s").replace("$model", ".+")
    now = time.time()
    rows = ask(prometheus, "query_range", query=expression, start=now - 5, end=now, step=1)["result"]
    values = [float(value) for row in rows for _, value in row["values"]]
    assert values
    assert any(map(math.isfinite, values)), values
    named = [row for row in rows if set(re.findall(r"{{(\w+)}}", legend)) <= set(row["metric"])]
    assert len({tuple(row["metric"].items()) for row in named}) == len(named) > 0


def test_the_variable_of_the_dashboard_has_the_models(prometheus):
    (variable,) = DASHBOARD["templating"]["list"]
    series, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
    models = ask(prometheus, f"label/{label}/values", **{"match[]": series})
    assert {"tokenizer", "embedding", "embedding_stream"} <= set(models)


def test_quantiles_lie_where_the_requests_are(prometheus):
    mean = "rate(lazuli_step_seconds_sum{model='embedding'}[10s]) / rate(lazuli_step_seconds_count[10s])"
    ((_, mean),) = query(prometheus, mean)
    low, high = (
        query(prometheus, f"histogram_quantile({share}, rate(lazuli_step_seconds_bucket{{model='embedding'}}[10s]))")
        for share in (0.05, 0.99)
    )
    assert 0 < low[0][1] <= high[0][1] < 10
    assert low[0][1] / 3 < mean < high[0][1] * 3


def test_no_alert_on_a_server_that_is_well(prometheus):
    rules = [rule for group in ask(prometheus, "rules")["groups"] for rule in group["rules"]]
    assert len(rules) == 7
    assert [rule["name"] for rule in rules if rule["state"] != "inactive" or rule.get("lastError")] == []
