"""Tiers of an endpoint whose slow root is a folder of a real XRootD server."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from dray import DrayError
from dray.client import StagingRequest
from dray.testing.endpoints import Root
from integration.endpoint.test_tier import check, one, states, tier_of, write
from integration.endpoint.tier_scene import MARKER, MIB, until
from integration.xrootd.servers import PATIENCE, SHIM, find, give

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Tier
    from dray.testing.endpoints import Endpoint
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = [pytest.mark.server, pytest.mark.timeout(500)]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let endpoints load dray's library over XrdCl."""
    # XRD_STREAMERRORWINDOW: seconds after an error until the client reconnects. Default: 1800.
    settings = {**PATIENCE, "XRD_STREAMERRORWINDOW": "1", "DRAY_XRDCL": str(find(SHIM))}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def folder_of(server: Xrootd) -> str:
    """Make the folder of the slow root on the server, and return its URL."""
    top = server.path("top")
    top.mkdir()
    give(top)
    return server.at("top")


def begin(start: Callable[..., Endpoint], url: str) -> Endpoint:
    """Start an endpoint whose tier demotes to the slow root ``url``."""
    roots = [Root("fast", {"tier": "fast"}), Root("slow", {"store": url, "tier": "slow"})]
    return start("bb", roots=roots, config={"tier": [tier_of(watermark=1.0)]})


def test_a_tier_demotes_to_a_server_and_restores_from_it(
    start_endpoint: Callable[..., Endpoint], bare: Scene, loads: None
) -> None:
    server = bare.server("grid", tpc=None)
    endpoint = begin(start_endpoint, folder_of(server))
    sums = {version: write(endpoint, "a", version) for version in (1, 2)}
    with endpoint.client() as client:
        until(client, "freed", lambda tier: states(tier) == {("a", 1): "slow", ("a", 2): "demoted"})
        for version, content in sums.items():
            check(server.path(f"top/a/{version}"), content)
        assert not endpoint.root("a/1", root="fast").exists()
        restored = client.stage_in(StagingRequest(application="a", version=1))
        assert restored.transfer is not None
        assert client.wait(restored.transfer, timeout_seconds=90).state == "done"
        tier = until(client, "restored", lambda tier: states(tier)["a", 1] == "demoted")
        check(endpoint.root("a/1", root="fast"), sums[1])
        # The restored files have other times than before, but are not a new version.
        until(client, "settled", lambda tier: one(tier, "a", 1).bytes == 3 * MIB)
        assert one(tier, "a", 1).state == "demoted"
        client.evict_staging(restored.id)
        until(client, "freed again", lambda tier: states(tier)["a", 1] == "slow")
        check(server.path("top/a/1"), sums[1])


def test_a_changed_copy_at_the_server_keeps_the_fast_copy(
    start_endpoint: Callable[..., Endpoint], bare: Scene, loads: None
) -> None:
    server = bare.server("grid", tpc=None)
    endpoint = begin(start_endpoint, folder_of(server))
    sums = write(endpoint, "a", 1)
    with endpoint.client() as client:
        tier = until(client, "demoted", lambda tier: states(tier) == {("a", 1): "demoted"})
        copy = one(tier, "a", 1).transfer
        assert copy is not None
        # Change a byte, but keep the size and the time of the file.
        at = server.path("top/a/1/part1")
        state = at.stat()
        data = bytearray(at.read_bytes())
        data[7] ^= 1
        at.write_bytes(data)
        os.utime(at, ns=(state.st_atime_ns, state.st_mtime_ns))
        for name in os.listxattr(at):
            if "XrdCks" in name:
                os.removexattr(at, name)
        with pytest.raises(
            DrayError, match=r"part1 was kept: the checksum of the slow copy differs"
        ):
            client.evict_staging(copy)
        check(endpoint.root("a/1", root="fast"), sums)
        assert endpoint.root(f"a/1/{MARKER}", root="fast").exists()


def test_a_server_that_goes_away_costs_nothing(
    start_endpoint: Callable[..., Endpoint], bare: Scene, loads: None
) -> None:
    server = bare.server("grid", tpc=None)
    endpoint = begin(start_endpoint, folder_of(server))
    sums = {1: write(endpoint, "a", 1)}
    with endpoint.client() as client:
        until(client, "demoted", lambda tier: states(tier) == {("a", 1): "demoted"})
        server.kill()
        sums[2] = write(endpoint, "a", 2)
        until(client, "found", lambda tier: ("a", 2) in states(tier))
        with pytest.raises(DrayError):
            client.evict_staging(str(one(client.tier("burst"), "a", 1).transfer))
        for version, content in sums.items():
            check(endpoint.root(f"a/{version}", root="fast"), content)
        server.start()
        until(client, "demoted", lambda tier: states(tier)["a", 2] == "demoted")
    for version, content in sums.items():
        check(server.path(f"top/a/{version}"), content)


def test_a_server_that_can_confirm_no_copy_is_refused(
    start_endpoint: Callable[..., Endpoint], bare: Scene, loads: None
) -> None:
    server = bare.server("grid", tpc=None, start=False)
    server.sums = ""
    server.start()
    url = folder_of(server)
    with pytest.raises(RuntimeError, match="nor computes a checksum"):
        begin(start_endpoint, url)
    shutil.rmtree(server.path("top"))


@pytest.mark.full
def test_a_root_of_the_group_that_is_away_delays_no_demotion(
    start_endpoint: Callable[..., Endpoint], bare: Scene, loads: None
) -> None:
    server = bare.server("grid", tpc=None)
    roots = [
        Root("fast", {"tier": "fast"}),
        Root("slow", {"tier": "slow"}),
        Root("mirror", {"store": folder_of(server)}),
    ]
    tier = tier_of(watermark=1.0, replicas=["mirror"])
    endpoint = start_endpoint("bb", roots=roots, config={"tier": [tier]})
    server.kill()
    sums = {version: write(endpoint, "a", version) for version in (1, 2)}
    with endpoint.client() as client:
        until(client, "freed", lambda tier: states(tier) == {("a", 1): "slow", ("a", 2): "demoted"})
        until(client, "failed", lambda tier: one(tier, "a", 1).replicas[0].error is not None)
        server.start()
        # A transfer to the mirror gives up after some tries. The tier repeats it after a minute.
        for _ in range(3):
            with contextlib.suppress(AssertionError):
                until(client, "replicated", is_replicated)
        assert is_replicated(client.tier("burst"))
    for version, content in sums.items():
        check(server.path(f"top/a/{version}"), content)


def is_replicated(tier: Tier) -> bool:
    """Return whether each version has a complete replica."""
    return all(each.replicas[0].state == "complete" for each in tier.versions)
