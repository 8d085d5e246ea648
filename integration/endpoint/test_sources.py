"""Several sources are all copied, replicas are equal, and an empty copy is an error."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray import DrayError
from dray.client import Place, Request, Retry, Selection
from integration.endpoint.raw import dray
from integration.harness import tree

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from dray import Client
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
ONCE = Retry(tries=0)
FOLDERS = Selection(recursive=True)


@pytest.fixture
def a(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    return start_endpoint("a")


@pytest.fixture
def b(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start an endpoint with files, a folder, an empty folder and a link."""
    b = start_endpoint("b")
    for number, name in enumerate(("one", "two", "folder/three")):
        b.root(name).parent.mkdir(exist_ok=True)
        tree.make_file(b.root(name), 1000 + number, seed=number)
    b.root("empty/er").mkdir(parents=True)
    b.root("link").symlink_to("one")
    return b


def ticket(client: Client, at: Endpoint, key: str, *paths: str, size: int | None = None) -> Place:
    """Return the place of the first path, with a ticket for all paths."""
    given = client.mint_ticket("t", "read", [f"/data/{path}" for path in paths], key)
    return Place(at.place(paths[0]), given.ticket, given.key, given.address, size)


def run(tmp_path: Path, *words: str | Path, ends: tuple[Endpoint, ...]) -> Ended:
    options: list[str] = []
    for end in ends:
        file = tmp_path / f"token-{end.name}"
        file.write_text(end.token(), encoding="utf-8")
        file.chmod(0o600)
        options += ["--peer-key", f"{end.address}={end.key}"]
        options += ["--token-file", f"{end.address}={file}"]
    return dray(*words, *options)


if TYPE_CHECKING:
    Ended: TypeAlias = subprocess.CompletedProcess[str]


def same(left: Path, right: Path) -> bool:
    return left.read_bytes() == right.read_bytes()


@pytest.mark.parametrize("slash", ["", "/"])
def test_all_sources_of_a_pull_arrive(a: Endpoint, b: Endpoint, slash: str) -> None:
    with a.client() as here, b.client() as there:
        first = ticket(there, b, a.key, "one", "two", "folder")
        others = [b.place("two"), b.place("folder")]
        wanted = Request([first, *others], f"/data/in{slash}", id="t", selection=FOLDERS)
        here.submit(wanted)
        done = here.wait("t", timeout_seconds=60)
    assert (done.state, done.files.done) == ("done", 3), done
    for name in ("one", "two", "folder/three"):
        assert same(a.root(f"in/{name}"), b.root(name))


def test_all_sources_within_an_endpoint_arrive(b: Endpoint) -> None:
    with b.client() as client:
        client.submit(Request(["/data/one", "/data/two"], "/data/in", id="t"))
        assert client.wait("t", timeout_seconds=60).files.done == 2
    assert same(b.root("in/one"), b.root("one"))
    assert same(b.root("in/two"), b.root("two"))


def test_all_sources_of_a_push_arrive(a: Endpoint, b: Endpoint) -> None:
    with a.client() as there, b.client() as here:
        given = there.mint_ticket("t", "write", ["/data/in"], b.key)
        place = Place(a.place("in/"), given.ticket, given.key, given.address)
        here.submit(Request(["/data/one", "/data/two"], place, id="t"))
        assert here.wait("t", timeout_seconds=60).files.done == 2
    assert same(a.root("in/two"), b.root("two"))


def test_the_command_copies_all_sources(a: Endpoint, b: Endpoint, tmp_path: Path) -> None:
    words = ("cp", "-q", b.place("one"), b.place("two"), a.place("in"))
    done = run(tmp_path, *words, ends=(a, b))
    assert done.returncode == 0, done
    assert sorted(os.listdir(a.root("in"))) == ["one", "two"]
    words = ("cp", "-q", b.place("one"), a.place("in/two"), a.place("in2"))
    mixed = run(tmp_path, *words, ends=(a, b))
    assert (mixed.returncode, "--replica" in mixed.stderr) == (2, True), mixed


@pytest.mark.parametrize(
    ("sources", "more", "said"),
    [
        (["/data/one", "/data/folder/one"], {}, "replace"),
        (["/data/one", "/data/%6fne"], {}, "replace"),
        (["/data/one", "/data/two"], {"replicas": ["/data/folder/three"]}, "several"),
        (["/data/one", "dray://h/data/two"], {}, "in one root of one endpoint"),
    ],
)
def test_sources_that_cannot_be_one_transfer_are_refused(
    b: Endpoint, sources: list[str], more: Json, said: str
) -> None:
    with b.client() as client, pytest.raises(DrayError) as caught:
        client.submit(Request(sources, "/data/in", id="t", **more))
    assert caught.value.kind == "invalid_request"
    assert said in str(caught.value), caught.value


def test_replicas_that_differ_are_refused_before_bytes_move(
    a: Endpoint, b: Endpoint, tmp_path: Path
) -> None:
    tree.make_file(a.root("one"), 999, seed=9)
    # If the caller declares different sizes, the submission is refused.
    with a.client() as here, b.client() as there:
        far = ticket(there, b, a.key, "one", size=1000)
        near = Place("/data/one", size=999)
        with pytest.raises(DrayError) as caught:
            here.submit(Request(far, "/data/to", id="t", replicas=[near]))
        for said in (b.place("one"), "/data/one", "1000", "999"):
            assert said in str(caught.value), caught.value
        # Without declared sizes, the endpoint finds the difference, and the transfer fails.
        here.submit(Request(far, "/data/to", id="t", replicas=["/data/one"], retry=ONCE))
        ended = here.wait("t", timeout_seconds=60)
    assert (ended.state, ended.bytes.sent) == ("failed", 0), ended
    assert ended.error is not None
    assert "/data/one" in ended.error.cause
    assert b.place("one") in ended.error.cause, ended.error
    # The command looks up the sizes and refuses the copy.
    words = ("cp", b.place("one"), a.place("to"), "--replica", a.place("one"))
    done = run(tmp_path, *words, ends=(a, b))
    assert done.returncode != 0
    assert a.place("one") in done.stderr, done
    assert b.place("one") in done.stderr, done
    assert not a.root("to").exists()


def test_the_command_takes_the_replica_when_the_source_fails(
    start_endpoint: Callable[..., Endpoint], a: Endpoint, b: Endpoint, tmp_path: Path
) -> None:
    c = start_endpoint("c")
    c.root("one").write_bytes(b.root("one").read_bytes())
    # The source exists, but it is a symbolic link. A session cannot read it as a file, so the
    # transfer uses the replica.
    b.root("one").unlink()
    b.root("one").symlink_to("two")
    words = ("cp", b.place("one"), a.place("to"), "--replica", c.place("one"))
    done = run(tmp_path, *words, ends=(a, b, c))
    assert done.returncode == 0, done
    assert same(a.root("to"), c.root("one"))


NOTHING: list[tuple[str, Json]] = [
    ("/data/empty", {"selection": FOLDERS}),
    ("/data/empty/", {"selection": FOLDERS}),
    ("/data/folder/", {"selection": Selection(recursive=True, include=["*.root"])}),
]


@pytest.mark.parametrize(("source", "more"), NOTHING)
def test_nothing_to_copy_fails_unless_it_is_allowed(b: Endpoint, source: str, more: Json) -> None:
    with b.client() as client:
        client.submit(Request(source, "/data/in", id="t", **more))
        ended = client.wait("t", timeout_seconds=60)
        assert ended.state == "failed", ended
        assert ended.error is not None
        assert (ended.error.kind, ended.error.status) == ("nothing_matched", "permanent")
        assert "files_min" in ended.error.remedy
        client.submit(Request(source, "/data/in", id="u", files_min=0, **more))
        assert client.wait("u", timeout_seconds=60).state == "done"
        # Files that exist already count.
        for _ in range(2):
            client.submit(Request("/data/folder/", "/data/again", id="v", selection=FOLDERS))
            assert client.wait("v", timeout_seconds=60).state == "done"
        least = Request("/data/folder/", "/data/again", id="w", selection=FOLDERS, files_min=2)
        client.submit(least)
        assert client.wait("w", timeout_seconds=60).state == "failed"


def test_a_named_link_is_not_copied_as_a_link(a: Endpoint, b: Endpoint) -> None:
    with a.client() as here, b.client() as there:
        here.submit(Request(ticket(there, b, a.key, "link"), "/data/to", id="t", retry=ONCE))
        ended = here.wait("t", timeout_seconds=60)
    assert ended.state == "failed", ended
    assert ended.error is not None
    assert "symbolic link" in ended.error.cause
    assert not os.path.lexists(a.root("to"))
