"""A real Prometheus evaluates each query of the dashboard and each rule for real endpoints."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import pytest

from dray.client import ListedFile, Place, Request, Selection
from dray.testing.endpoints import Root
from integration.endpoint.prometheus import Prometheus, needs_prometheus
from integration.endpoint.test_monitoring import RULES, Query, dashboard, queries
from integration.endpoint.tier_scene import tier_keys
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.client import Client
    from dray.testing.endpoints import Endpoint

MIB = tree.MIB
#: Prometheus needs two samples of a counter for a rate.
SAMPLES = 'min(count_over_time(dray_files_failed_total{kind="checksum_mismatch"}[1m])) >= 2'
#: Queries without a series at a healthy site, with the reason.
EMPTY = {
    "dray_target_congested": "the query has only targets that are congested now",
}
#: Queries without a number at this site, with the reason. Grafana shows no line for them.
WITHOUT_NUMBER = {
    "dray_tier_hits_total": "no application has restarted in the last day",
}
#: Alerts of the failed file of this test.
ALERTS = {"DrayFileChecksumMismatch"}

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


def start(start_endpoint: Callable[..., Endpoint]) -> tuple[Endpoint, Endpoint]:
    """Start an endpoint with a tier, and an endpoint of the destination."""
    roots = [Root("data"), Root("scratch", {"tier": "fast"}), Root("archive", {"tier": "slow"})]
    config = {"metrics": {"open": True}, "tier": [tier_keys(fast=["scratch"], slow="archive")]}
    a = start_endpoint("a", roots=roots, config=config)
    return a, start_endpoint("b", config={"metrics": {"open": True}})


def fail(client: Client, site: Endpoint) -> None:
    """Run a transfer that fails, and one with a file that differs from its checksum."""
    client.submit(Request("/data/missing", "/data/z", id="missing"))
    assert client.wait("missing", timeout_seconds=60).state == "failed"
    site.root("run").mkdir()
    (site.root("run") / "wrong").write_bytes(b"content")
    client.submit(
        Request(
            "/data/run/",
            "/data/copy/",
            id="wrong",
            files=[ListedFile("wrong", 7, "adler32:00000001")],
            selection=Selection(recursive=True),
        )
    )
    assert client.wait("wrong", timeout_seconds=60).files.failed == 1


def shown(query: Query) -> str:
    """Return the expression as Grafana sends it while all endpoints are selected."""
    return query.expression.replace("$instance", ".*")


def is_listed(query: Query, listed: dict[str, str]) -> bool:
    """Return true if a metric of the query is in a list of exceptions."""
    return any(name in query.expression for name in listed)


def faults(prometheus: Prometheus, query: Query) -> list[str]:
    """Describe the faults of a panel's query."""
    found = prometheus.await_series(shown(query), 0 if is_listed(query, EMPTY) else 30)
    if not found:
        return [] if is_listed(query, EMPTY) else [f"{query.place}: no series"]
    wrong = [
        f"{query.place}: a series without the label {label}"
        for label in query.labels
        if any(label not in labels for labels, _ in found)
    ]
    has_number = any(math.isfinite(number) for _, number in found)
    if not has_number and not is_listed(query, WITHOUT_NUMBER):
        wrong.append(f"{query.place}: no number")
    return wrong


def await_rules(prometheus: Prometheus) -> dict[str, str]:
    """Wait until each rule is evaluated and the expected alerts fire. Return the firing alerts."""
    until = time.monotonic() + 60
    while True:
        groups = prometheus.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []
        firing = {
            alert["labels"]["alertname"]: alert["annotations"]["summary"]
            for alert in prometheus.ask("alerts")["alerts"]
            if alert["state"] == "firing"
        }
        if all(rule["health"] == "ok" for rule in rules) and firing.keys() >= ALERTS:
            assert len(rules) == RULES.read_text(encoding="utf-8").count("- alert: ")
            return firing
        assert time.monotonic() < until, (rules, firing)
        time.sleep(0.5)


@needs_prometheus
def test_every_query_has_a_series_while_a_transfer_runs(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    a, b = start(start_endpoint)
    tree.make_file(a.root("x"), 128 * MIB, seed=1)
    with Prometheus(tmp_path, (a, b), RULES) as prometheus, a.client() as here, b.client() as there:
        assert prometheus.await_series(SAMPLES)
        fail(here, a)
        ticket = there.mint_ticket("t", "write", ["/data/y"], a.key)
        far = Place(b.place("y"), ticket.ticket, ticket.key, ticket.address)
        here.submit(Request(sources=["/data/x"], destination=far, id="t", rate_max=MIB))
        panels = [query for query in queries() if query.place.startswith("panel ")]
        assert len(panels) > 40
        wrong = [fault for query in panels for fault in faults(prometheus, query)]
        assert wrong == []
        # All series existed while the transfer ran.
        assert here.transfer("t").state == "active"
        firing = await_rules(prometheus)
        assert set(firing) == ALERTS, firing
        assert firing["DrayFileChecksumMismatch"].startswith(f"{a.address}: files do not have")
        # The list of endpoints at the top of the dashboard.
        (variable,) = [
            each for each in dashboard()["templating"]["list"] if each["type"] == "query"
        ]
        assert variable["definition"] == "label_values(dray_sessions, instance)"
        listed = prometheus.ask("label/instance/values", **{"match[]": "dray_sessions"})
        assert set(listed) == {a.address, b.address}
        # The checks see a wrong query.
        nobody = Query("panel p", 'dray_sessions{instance="nobody"}', frozenset())
        assert not prometheus.series(nobody.expression)
        other = Query("panel p", "dray_sessions / 0 * 0", frozenset({"root"}))
        assert faults(prometheus, other) == [
            "panel p: a series without the label root",
            "panel p: no number",
        ]
        with pytest.raises(ValueError, match="parse error"):
            prometheus.series("sum by (dray_sessions")
        here.cancel("t", purge=True)
