"""The object log of a transfer, as the control API explains it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Place, Request, Selection, TransferLog
from dray.errors import DrayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client
    from dray.testing.endpoints import Endpoint

KIB = 1 << 10
MIB = 1 << 20
FILES = 3

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


def request(id: str = "t") -> Request:
    """Return the request for a folder that is slow enough to be interrupted."""
    return Request(
        "/data/run/",
        "/data/copy/",
        id=id,
        selection=Selection(recursive=True),
        rate_max=MIB,
        object_size=256 * KIB,
    )


def await_log(
    client: Client, is_met: Callable[[TransferLog], bool], seconds: float = 30
) -> TransferLog:
    """Ask for the log of the transfer ``t`` until a condition holds."""
    until = time.monotonic() + seconds
    while not is_met(found := client.log("t")):
        assert time.monotonic() < until, (found, client.transfer("t"))
        time.sleep(0.05)
    return found


def trusted(found: TransferLog) -> int:
    """Return the bytes that the next session need not send."""
    return sum(file.bytes_trusted for file in found.files)


def test_the_log_explains_which_ranges_the_next_session_sends(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    site = start_endpoint("a", config={"rate": f"{64 * MIB}"})
    folder = site.root("run") / "deep"
    folder.mkdir(parents=True)
    for number in range(FILES):
        (folder / f"part{number}").write_bytes(os.urandom(4 * MIB))
    with site.client() as client, site.client(subject="bob") as other:
        client.submit(request())
        await_log(client, lambda found: trusted(found) > MIB)
        client.pause("t")
        until = time.monotonic() + 30
        while client.transfer("t").state != "paused":
            assert time.monotonic() < until
            time.sleep(0.05)
        found = client.log("t")
        assert found.endpoint is None
        assert found.log is not None
        assert found.log.transfer == "t"
        assert found.log.path.startswith("/data/copy/.dray-log/")
        assert found.log.files == len(found.files)
        assert {file.size for file in found.files} == {4 * MIB}
        for file in found.files:
            assert file.path.startswith("deep/part")
            assert file.verdict == "trusted"
            assert file.bytes_trusted == sum(each.length for each in file.trusted)
        # The program tells the same about the same log.
        told = subprocess.run(
            [site.program, "log", "explain", "--json", site.root("copy")],
            check=True,
            capture_output=True,
        )
        (log,) = json.loads(told.stdout)["logs"]
        assert found.log.form == log["form"]
        assert {file["path"]: file["why"] for file in log["files"]} == {
            file.path: file.why for file in found.files
        }
        # Pages follow each other without a gap.
        paths, cursor = [], None
        while True:
            page = client.log("t", limit=1, cursor=cursor)
            paths += [file.path for file in page.files]
            if page.next is None:
                break
            cursor = page.next
        assert paths == [file.path for file in found.files]
        # A replaced partial file is not trusted, and the answer says why.
        first = found.files[0]
        partial = site.root("copy") / "deep" / first.partial
        content = partial.read_bytes()
        partial.unlink()
        partial.write_bytes(content)
        (changed,) = [file for file in client.log("t").files if file.path == first.path]
        assert (changed.verdict, changed.bytes_trusted) == ("not_trusted", 0)
        assert changed.bytes_logged == first.bytes_logged
        assert changed.why
        for caller, id in ((other, "t"), (client, "none")):
            with pytest.raises(DrayError) as refused:
                caller.log(id)
            assert refused.value.kind == "not_found"
        with pytest.raises(DrayError) as invalid:
            client.log("t", cursor="../x")
        assert invalid.value.kind == "invalid_request"
        client.change("t", rate_max=None)
        client.resume("t")
        assert client.wait("t", timeout_seconds=60).state == "done"
        assert client.log("t") == TransferLog()


def test_the_log_of_another_endpoint_is_named_and_not_read(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    a, b = start_endpoint("a"), start_endpoint("b")
    a.root("big").write_bytes(os.urandom(MIB))
    with a.client() as here, b.client() as there:
        ticket = there.mint_ticket("t", "write", ["/data/big"], a.key)
        far = Place(b.place("big"), ticket.ticket, ticket.key, ticket.address)
        here.submit(Request(["/data/big"], far, id="t"))
        found = here.log("t")
        assert found.endpoint == b.address
        assert (found.log, found.files) == (None, ())
