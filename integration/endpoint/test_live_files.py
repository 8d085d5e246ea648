"""The files under way of a transfer by name, and the sums for its folders."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal

import pytest

from dray.client import LiveFiles, Place, Request, Selection
from dray.errors import DrayError
from dray.testing.endpoints import Root
from integration.endpoint.console import REVERSED, SCRIPT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.client import Client
    from dray.testing.endpoints import Endpoint

KIB = 1 << 10
MIB = 1 << 20
FOLDERS_MAX = 1000

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


def await_files(
    client: Client, transfer: str, is_met: Callable[[LiveFiles], bool], seconds: float = 30
) -> LiveFiles:
    """Ask for the files under way until a condition holds."""
    until = time.monotonic() + seconds
    while not is_met(found := client.live_files(transfer)):
        assert time.monotonic() < until, (found, client.transfer(transfer))
        time.sleep(0.05)
    return found


def has_begun(found: LiveFiles) -> bool:
    """Return whether bytes of a file are durable and the file is not finished."""
    return any(file.state == "moving" and file.bytes_done > 0 for file in found.files)


def hostile_tree(folder: Path) -> dict[str, int]:
    """Make large files with hostile names. Return the size of each file by its API path."""
    names = {
        SCRIPT.replace("/", "_").encode(): SCRIPT.replace("/", "_"),
        REVERSED.encode(): "run%E2%80%AEtxt.exe",
        b"two\nlines": "two%0Alines",
        b"no\xfftext": "no%FFtext",
        b"n" * 255: "n" * 255,
    }
    deep = folder / "sub" / "deep"
    deep.mkdir(parents=True)
    for name in names:
        with open(os.fsencode(deep) + b"/" + name, "wb") as file:
            file.write(os.urandom(4 * MIB))
    (folder / "top").write_bytes(os.urandom(4 * MIB))
    return {f"sub/deep/{path}": 4 * MIB for path in names.values()} | {"top": 4 * MIB}


def test_the_files_under_way_and_the_sums_of_folders_are_named(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    site = start_endpoint("a")
    sizes = hostile_tree(site.root("run"))
    request = Request(
        "/data/run/",
        "/data/copy/",
        id="t",
        selection=Selection(recursive=True),
        rate_max=2 * MIB,
        object_size=256 * KIB,
    )
    with site.client() as client, site.client(subject="bob") as other:
        assert client.submit(request).id == "t"
        found = await_files(client, "t", has_begun)
        assert found.is_reported
        assert {file.path: file.size for file in found.files}.items() <= sizes.items()
        assert found.files_more == 0
        assert all(file.bytes_done <= file.size for file in found.files)
        # Files that have begun come first.
        waits = [file.state == "waiting" for file in found.files]
        assert waits == sorted(waits)
        folders = {folder.path: folder for folder in found.folders}
        assert list(folders) == ["", "sub", "sub/deep"]
        assert (folders[""].files, folders[""].bytes) == (6, 24 * MIB)
        assert (folders["sub/deep"].files, folders["sub/deep"].bytes) == (5, 20 * MIB)
        assert folders["sub"].files == folders["sub/deep"].files
        assert 0 < folders[""].bytes_done < 24 * MIB
        assert folders[""].failed == 0
        # Another owner gets the same refusal as for the transfer itself.
        for call in (other.live_files, other.transfer):
            with pytest.raises(DrayError) as refused:
                call("t")
            assert refused.value.kind == "not_found"
        client.change("t", rate_max=None)
        assert client.wait("t", timeout_seconds=60).state == "done"
        assert client.live_files("t") == LiveFiles()
        with pytest.raises(DrayError) as missing:
            client.live_files("none")
        assert missing.value.kind == "not_found"


def test_both_directions_between_endpoints_report_files_and_targets(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    a, b = start_endpoint("a"), start_endpoint("b")
    for site in (a, b):
        site.root("big").write_bytes(os.urandom(16 * MIB))
    with a.client() as here, b.client() as there:
        ways: list[tuple[str, Literal["read", "write"]]] = [("push", "write"), ("pull", "read")]
        for id, way in ways:
            ticket = there.mint_ticket(id, way, [f"/data/{id if way == 'write' else 'big'}"], a.key)
            path = b.place(id if way == "write" else "big")
            far = Place(path, ticket.ticket, ticket.key, ticket.address)
            ends = (["/data/big"], far) if way == "write" else ([far], f"/data/{id}")
            here.submit(
                Request(
                    sources=ends[0],
                    destination=ends[1],
                    id=id,
                    rate_max=2 * MIB,
                    object_size=256 * KIB,
                    streams="auto",
                )
            )
        for id in ("push", "pull"):
            found = await_files(here, id, has_begun)
            (file,) = found.files
            assert file.size == 16 * MIB
            # A session with a tuned number of streams also reports its storage targets.
            until = time.monotonic() + 30
            while not here.targets(transfer=id):
                assert time.monotonic() < until
                time.sleep(0.05)
            here.cancel(id, purge=True)


def test_the_sums_of_many_folders_are_bounded_and_complete(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    targets = {"targets": ["{path}=slow"], "limit_targets": ["slow=1MiB/s"]}
    site = start_endpoint("a", roots=[Root("data"), Root("slow", targets)])
    source = site.root("many")
    for number in range(FOLDERS_MAX + 200):
        folder = source / f"f{number:04}"
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 10 * KIB)
    (source / "f0000" / "large").write_bytes(b"y" * MIB)
    request = Request("/data/many/", "/slow/copy/", id="t", selection=Selection(recursive=True))
    with site.client() as client:
        client.submit(request)
        expected = FOLDERS_MAX + 201
        found = await_files(
            client, "t", lambda found: bool(found.folders) and found.folders[0].files == expected
        )
        assert len(found.files) <= 100
        assert len(found.folders) == FOLDERS_MAX
        root = found.folders[0]
        assert root.bytes == (FOLDERS_MAX + 200) * 10 * KIB + MIB
        assert root.folders_more == 201
        below = sum(folder.files for folder in found.folders[1:])
        # Each folder has one file, and one of them has a second file.
        assert root.files - below - root.folders_more in (0, 1)
        assert root.files_done < root.files
        client.cancel("t", purge=True)
