"""A transfer copies a list of files from a folder, each with a required size and checksum."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from dray import DrayUsageError
from dray.client import ListedFile, Place, Request, Selection
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.client import Client, FileOutcome, Transfer
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

LISTED = ("ab/cd/x", "ab/ef/y%5B1%5D", "top")
NAMES = ("ab/cd/x", "ab/ef/y[1]", "top")
OTHERS = ("ab/cd/other", "zz/x", "ab/top")


def listed(root: Path) -> list[ListedFile]:
    """Return the list of files with their sizes and checksums."""
    found = []
    for path, name in zip(LISTED, NAMES, strict=True):
        content = (root / name).read_bytes()
        checksum = f"adler32:{zlib.adler32(content):08x}"
        found.append(ListedFile(path, len(content), checksum))
    return found


def make(root: Path) -> None:
    for number, name in enumerate((*NAMES, *OTHERS)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        tree.make_file(path, 1000 + 500_000 * number, seed=number)


def run(
    here: Client, source: Place | str, files: list[ListedFile]
) -> tuple[Transfer, dict[str, FileOutcome]]:
    selection = Selection(recursive=True)
    request = Request(source, "/data/to/", id="t", selection=selection, files=files)
    here.submit(request)
    done = here.wait("t", timeout_seconds=60)
    return done, {each.path: each for each in here.files("t")}


@pytest.mark.parametrize("is_far", [True, False])
def test_only_the_listed_files_arrive(
    start_endpoint: Callable[..., Endpoint], is_far: bool
) -> None:
    a = start_endpoint("a")
    far = start_endpoint("far") if is_far else a
    root = far.root("from")
    make(root)
    with a.client() as here, far.client() as there:
        source: Place | str = "/data/from/"
        if is_far:
            ticket = there.mint_ticket("t", "read", ["/data/from/"], a.key)
            source = Place(far.place("from") + "/", ticket.ticket, ticket.key, ticket.address)
        done, outcomes = run(here, source, listed(root))
    assert (done.state, done.files.done) == ("done", 3), done
    assert {each.state for each in outcomes.values()} == {"done"}
    assert set(outcomes) == set(NAMES)
    to = a.root("to")
    arrived = {str(each.relative_to(to)) for each in to.rglob("*") if ".dray-" not in str(each)}
    assert arrived == {*NAMES, "ab", "ab/cd", "ab/ef"}
    for name in NAMES:
        assert (to / name).read_bytes() == (root / name).read_bytes()


def test_a_file_with_another_checksum_or_size_fails_alone(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    a, far = start_endpoint("a"), start_endpoint("far")
    root = far.root("from")
    make(root)
    files = listed(root)
    wrong = [
        ListedFile(files[0].path, files[0].size, "adler32:00000001"),
        ListedFile(files[1].path, 5),
        files[2],
        ListedFile("ab/missing", 10),
    ]
    with a.client() as here, far.client() as there:
        ticket = there.mint_ticket("t", "read", ["/data/from/"], a.key)
        source = Place(far.place("from") + "/", ticket.ticket, ticket.key, ticket.address)
        done, outcomes = run(here, source, wrong)
        again, more = run(here, source, files)
    assert done.state in ("failed", "incomplete"), done
    kinds = {name: each.error and each.error.kind for name, each in outcomes.items()}
    assert kinds == {NAMES[0]: "checksum_mismatch", NAMES[1]: "source_changed", "top": None}
    # The third file was already there, so the second attempt has no outcome for it.
    assert (again.state, set(more)) == ("done", set(NAMES[:2])), again
    assert again.files.adopted == 1


def test_a_list_needs_a_destination_at_the_called_endpoint(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    a, far = start_endpoint("a"), start_endpoint("far")
    make(a.root("from"))
    with a.client() as here, far.client() as there:
        ticket = there.mint_ticket("t", "write", ["/data/to/"], a.key)
        to = Place(far.place("to") + "/", ticket.ticket, ticket.key, ticket.address)
        request = Request(
            "/data/from/",
            to,
            id="t",
            selection=Selection(recursive=True),
            files=listed(a.root("from")),
        )
        with pytest.raises(DrayUsageError, match="submit the request to the endpoint of the dest"):
            here.submit(request)
