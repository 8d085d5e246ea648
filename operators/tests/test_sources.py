"""Tests of several sources, of replicas, and of lists that were rendered by templates."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray_airflow import values
from dray_airflow.errors import DrayTaskFailure
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.operators.transfer import DrayTransferOperator
from dray_airflow.submission import Clients, begin, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.plugin import Two

Loose: TypeAlias = Any
pytestmark = pytest.mark.server


def move(**words: Loose) -> DrayTransferOperator:
    given: dict[str, Any] = {
        "task_id": "move",
        "sources": "/data/x.dat",
        "destination": "/data/y.dat",
        "source_conn_id": "site_a",
        "destination_conn_id": "site_b",
    }
    return DrayTransferOperator(**{**given, **words})


def context() -> Loose:
    task = SimpleNamespace(dag_id="d", run_id="r", task_id="move", map_index=-1, id="try")
    return {"ti": task, "dag": SimpleNamespace(tasks=[])}


@pytest.mark.parametrize(
    "text", ["['a', 'b']", '["/data/a"]', "('a',)", "[]", "['*.dat', '[ab]*']", " ['a'] "]
)
def test_a_list_that_became_a_text_is_refused(text: str) -> None:
    for name in ("sources", "include", "replicas"):
        with pytest.raises(DrayTaskFailure, match="a list that a template rendered to text"):
            values.texts(name, text)


@pytest.mark.parametrize("text", ["[ab]*", "[1]", "/data/[a", "[!a]x[b]", "(a)", "['a'", "[a, b]"])
def test_a_pattern_is_no_list(text: str) -> None:
    assert values.texts("include", text) == (text,)
    assert values.texts("include", [text, "b"]) == (text, "b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"sources": []}, "use sources: sources has 0 items after its templates were rendered"),
        (
            {"sources": [f"/data/{at}" for at in range(257)]},
            "sources has 257 items after its templates were rendered",
        ),
        (
            {"source_conn_id": ["site_a", "site_b"]},
            "list equal copies at other endpoints in replicas",
        ),
        ({"sources": ["/data/a", "/data/b"], "replicas": "/data/c"}, "use replicas"),
        ({"replicas": ["/data/c"], "active": "source"}, "active is 'source'"),
        ({"replicas": [f"/data/{at}" for at in range(16)]}, "up to 15 copies"),
        ({"replicas": "/data/c", "replica_conn_id": ["site_a", "site_b"]}, "2 connections"),
        ({"files_min": "some"}, "write a whole number"),
        ({"options": "{'streams': 2}"}, "give a dictionary"),
        ({"options": {"replicas": ["/data/c"]}}, "options has the unknown field 'replicas'"),
    ],
)
def test_invalid_arguments_are_refused_by_name(
    words: dict[str, Any], said: str, two_endpoints: Two, connect: Callable[..., str]
) -> None:
    connect("site_a", two_endpoints.a)
    connect("site_b", two_endpoints.b)
    with pytest.raises(DrayTaskFailure, match=said):
        move(**words).errand(context(), DrayHook("site_b").settings)


def test_replicas_are_part_of_the_request(two_endpoints: Two, connect: Callable[..., str]) -> None:
    connect("site_a", two_endpoints.a)
    connect("site_b", two_endpoints.b)
    settings = DrayHook("site_b").settings
    plain = move().errand(context(), settings)
    both = move(replicas="/data/z.dat", replica_conn_id="site_b").errand(context(), settings)
    assert [(end.conn_id, end.path) for end in both.replicas] == [("site_b", "/data/z.dat")]
    assert fingerprint(plain) != fingerprint(both)
    assert "replicas" not in plain.body()


def test_all_sources_arrive_and_a_replica_of_another_size_is_refused(
    two_endpoints: Two, connect: Callable[..., str]
) -> None:
    a, b = two_endpoints.a, two_endpoints.b
    connect("site_a", a)
    connect("site_b", b)
    settings = DrayHook("site_b").settings
    for name, size in (("one", 1000), ("two", 2000), ("copy", 1000)):
        a.root(name).write_bytes(os.urandom(size))
    with Clients() as clients:
        client = clients.of("site_b")

        def ended(**words: Loose) -> Loose:
            errand = move(overwrite="always", **words).errand(context(), settings)
            begun = begin(errand, clients)
            return client.wait(begun.transfer.id, timeout_seconds=60)

        assert ended(sources=["/data/one", "/data/two"], destination="/data/in/").state == "done"
        for name in ("one", "two"):
            assert b.root(f"in/{name}").read_bytes() == a.root(name).read_bytes()
        done = ended(sources="/data/one", replicas="/data/copy", destination="/data/r")
        assert done.state == "done"
        with pytest.raises(DrayTaskFailure, match="/data/two"):
            ended(sources="/data/one", replicas="/data/two", destination="/data/q")
        a.root("empty").mkdir()
        empty = {"sources": "/data/empty/", "destination": "/data/e/", "recursive": True}
        assert ended(**empty).state == "failed"
        assert ended(**empty, files_min=0).state == "done"
