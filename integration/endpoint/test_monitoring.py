"""The dashboard and the alert rules use only metrics and labels that an endpoint has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from dray.client import Place, Request
from dray.testing.endpoints import Root
from integration.endpoint.raw import ask
from integration.endpoint.tier_scene import tier_keys
from integration.harness import tree
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

FOLDER = ROOT / "plugins" / "monitoring"
RULES = FOLDER / "alerts.yaml"
RULE_TESTS = FOLDER / "alerts-test.yaml"
MIB = tree.MIB
#: Labels that Prometheus adds to every series.
ADDED = {"instance", "job"}
METRIC = re.compile(r"\b(dray_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|on|without) \(([\w, ]*)\)")
LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? \S+$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

#: For each metric the values of each label.
Exposed = dict[str, dict[str, set[str]]]


class Query(NamedTuple):
    """A query, and the labels that texts beside it use."""

    place: str
    expression: str
    labels: frozenset[str]


def exposed(text: str) -> Exposed:
    """Return the metrics in an answer of ``/metrics``."""
    found: Exposed = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        sample = SAMPLE.match(line)
        assert sample is not None, line
        labels = found.setdefault(sample[1], {})
        for name, value in LABEL.findall(sample[2] or ""):
            labels.setdefault(name, set()).add(value)
    return found


def mistakes(query: Query, metrics: Exposed) -> list[str]:
    """Describe the metrics, labels and label values of a query that no endpoint has."""
    wrong: list[str] = []
    known = set(ADDED)
    selectors = METRIC.findall(query.expression)
    if not selectors and "up{" not in query.expression:
        wrong.append("no metric of dray")
    for name, matchers in selectors:
        labels = metrics.get(name)
        if labels is None:
            wrong.append(f"no metric {name}")
            continue
        known |= labels.keys()
        for label, operator, value in MATCHER.findall(matchers):
            if label in ADDED:
                continue
            if label not in labels:
                wrong.append(f"{name} has no label {label}")
                continue
            values = value.split("|") if operator in ("=~", "!~") else [value]
            wrong += [
                f"{name} has no {label} {each!r}" for each in values if each not in labels[label]
            ]
    for grouping in GROUPING.findall(query.expression):
        used = {each.strip() for each in grouping.split(",")}
        wrong += [f"no label {each}" for each in sorted(used - known)]
    wrong += [f"no label {each}" for each in sorted(query.labels - known)]
    return [f"{query.place}: {each}" for each in wrong]


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    loaded: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return loaded


def queries() -> Iterator[Query]:
    """Yield every query of the dashboard and of the rules."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            labels = frozenset(LEGEND.findall(target["legendFormat"]))
            yield Query(f"panel {panel['title']}", target["expr"], labels)
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            texts = " ".join(rule["annotations"].values())
            labels = frozenset(re.findall(r"\$labels\.(\w+)", texts))
            yield Query(f"rule {rule['alert']}", rule["expr"], labels)


def alerts() -> list[str]:
    """Return the names of all alerts."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"]]


def read(endpoint: Endpoint) -> Exposed:
    """Read the metrics of an endpoint."""
    answer = ask(endpoint, "GET", "/metrics")
    assert answer.code == 200, answer
    return exposed(answer.text)


def value(endpoint: Endpoint, series: str) -> float:
    """Return the value of one series."""
    lines = ask(endpoint, "GET", "/metrics").text.splitlines()
    (found,) = (line for line in lines if line.startswith(f"{series} "))
    return float(found.rsplit(" ", 1)[1])


def await_value(endpoint: Endpoint, series: str, least: float) -> None:
    """Wait until a series has at least a value. Some values follow the end of a transfer."""
    until = time.monotonic() + 20
    while (found := value(endpoint, series)) < least:
        assert time.monotonic() < until, f"{series} is {found}"
        time.sleep(0.1)


@pytest.mark.server
@pytest.mark.timeout(120)
def test_every_query_finds_its_metrics_at_a_real_endpoint(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    roots = [Root("data"), Root("scratch", {"tier": "fast"}), Root("archive", {"tier": "slow"})]
    config = {"metrics": {"open": True}, "tier": [tier_keys(fast=["scratch"], slow="archive")]}
    a = start_endpoint("a", roots=roots, config=config)
    b = start_endpoint("b", config={"metrics": {"open": True}})
    tree.make_file(a.root("x"), 8 * MIB, seed=1)
    with a.client() as here, b.client() as there:
        ticket = there.mint_ticket("t", "write", ["/data/y"], a.key)
        far = Place(b.place("y"), ticket.ticket, ticket.key, ticket.address)
        here.submit(Request(sources=["/data/x"], destination=far, id="t", rate_max=2 * MIB))
        until = time.monotonic() + 30
        # The metrics of targets exist while a session uses the targets.
        while "dray_target_service_seconds" not in (metrics := read(a)):
            assert time.monotonic() < until, here.transfer("t")
            time.sleep(0.1)
        wrong = [each for query in queries() for each in mistakes(query, metrics)]
        assert wrong == []
        done = here.wait("t", timeout_seconds=60)
        assert done.state == "done"
        # A transfer that cannot succeed.
        here.submit(Request("/data/missing", "/data/z", id="u"))
        assert here.wait("u", timeout_seconds=60).state == "failed"
    assert value(a, 'dray_transfers_ended_total{state="done"}') == 1
    assert value(a, 'dray_transfers_ended_total{state="failed"}') == 1
    await_value(a, 'dray_sessions_failed_total{kind="not_found"}', 1)
    assert value(a, "dray_retries_total") == 0
    assert value(a, "dray_bytes_resent_total") == 0
    # The sink counts the commits of its log.
    await_value(b, "dray_log_commit_seconds_count", 1)
    assert value(b, "dray_log_commit_seconds_sum") > 0
    assert value(a, "dray_log_commit_seconds_count") == 0
    free = value(a, 'dray_root_free_bytes{root="data"}')
    assert 0 < free <= value(a, 'dray_root_size_bytes{root="data"}')
    system = shutil.disk_usage(a.root())
    assert abs(free - system.free) < 0.1 * system.total


def test_a_wrong_query_is_seen() -> None:
    text = (
        '# TYPE dray_transfers gauge\ndray_transfers{state="done"} 1\n'
        'dray_target_congested{end="sink",target="a \\"b\\" c"} 0\ndray_sessions 0\n'
    )
    metrics = exposed(text)
    assert metrics["dray_target_congested"]["target"] == {'a \\"b\\" c'}

    def wrong(expression: str, *labels: str) -> list[str]:
        return mistakes(Query("q", expression, frozenset(labels)), metrics)

    fine = 'sum by (state) (dray_transfers{instance=~"$instance",state="done"})'
    assert wrong(fine, "state", "instance") == []
    assert wrong("dray_session") == ["q: no metric dray_session"]
    assert wrong('dray_transfers{state=~"done|dead"}') == ["q: dray_transfers has no state 'dead'"]
    assert wrong('dray_sessions{root="x"}') == ["q: dray_sessions has no label root"]
    assert wrong("sum by (root) (dray_sessions)") == ["q: no label root"]
    assert wrong("dray_sessions", "root") == ["q: no label root"]
    assert wrong("vector(1)") == ["q: no metric of dray"]


def test_the_dashboard_has_the_parts_that_grafana_needs() -> None:
    board = dashboard()
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    kinds = {panel["type"] for panel in panels}
    assert kinds == {"row", "stat", "timeseries"}
    variables = {each["name"] for each in board["templating"]["list"]}
    assert variables == {"datasource", "instance"}
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + across, place["y"] + down)
            for across in range(place["w"])
            for down in range(place["h"])
        }
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"].endswith("."), panel["title"]
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_the_page_describes_every_alert() -> None:
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(Dray\w+)` \|", page, re.MULTILINE))
    assert told == set(alerts())


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool on PATH; tools/bootstrap.sh test"
)


def promtool(*words: str | Path) -> str:
    """Run Prometheus's own tool. Return its output."""
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_the_rules_are_valid() -> None:
    rules = RULES.read_text(encoding="utf-8").count("- alert: ")
    assert rules > 10
    assert f"SUCCESS: {rules} rules found" in promtool("check", "rules", RULES)


@needs_promtool
def test_the_example_of_the_configuration_is_valid(tmp_path: Path) -> None:
    for name in ("alerts.yaml", "prometheus.yaml"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "token").write_text("token", encoding="utf-8")
    (tmp_path / "ca.pem").write_text("", encoding="utf-8")
    assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yaml")


@needs_promtool
def test_the_alerts_fire_on_faults_alone() -> None:
    assert "SUCCESS" in promtool("test", "rules", RULE_TESTS)


def test_each_alert_has_a_test_that_fires_and_one_that_does_not() -> None:
    tests = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    fires: set[str] = set()
    silent: set[str] = set()
    for test in tests:
        for each in test.get("alert_rule_test", []):
            (fires if each["exp_alerts"] else silent).add(each["alertname"])
    assert fires == silent == set(alerts())


@needs_promtool
@pytest.mark.parametrize("wrong", ["absent(vector(1))", "vector(1)"], ids=["never", "always"])
def test_a_rule_that_never_fires_or_always_fires_is_seen(tmp_path: Path, wrong: str) -> None:
    whole = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))
    for name in alerts():
        # Only the tests of this alert, because each test evaluates all rules.
        judged = [
            test
            for test in whole["tests"]
            if any(each["alertname"] == name for each in test.get("alert_rule_test", []))
        ]
        tests = yaml.safe_dump({**whole, "tests": judged})
        (tmp_path / RULE_TESTS.name).write_text(tests, encoding="utf-8")
        rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
        for rule in (rule for group in rules["groups"] for rule in group["rules"]):
            if rule["alert"] == name:
                rule["expr"] = wrong
        (tmp_path / RULES.name).write_text(yaml.safe_dump(rules), encoding="utf-8")
        with pytest.raises(AssertionError, match=f"alertname: {name},"):
            promtool("test", "rules", tmp_path / RULE_TESTS.name)
