"""A tier copies demoted versions to the further roots of its replication group."""

from __future__ import annotations

import functools
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from dray import DrayError
from dray.client import StagingRequest
from dray.testing.endpoints import Root
from integration.endpoint.raw import dray
from integration.endpoint.scene import FULL
from integration.endpoint.test_tier import check, fill, metrics_of, one, states, tier_of, write
from integration.endpoint.tier_scene import MIB, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Tier
    from dray.testing.endpoints import Endpoint
    from dray.testing.faults import Faults

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

GROUP = ("east", "west")


@pytest.fixture
def group(start_endpoint: Callable[..., Endpoint]) -> Callable[..., Endpoint]:
    """Return a function that starts an endpoint whose tier has two further roots."""

    def start(**changes: object) -> Endpoint:
        roots = [Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"})]
        roots += [Root(name) for name in GROUP]
        tier = tier_of(watermark=1.0, replicas=list(GROUP), **changes)
        return start_endpoint("bb", roots=roots, config={"tier": [tier]})

    return start


def progress(tier: Tier) -> dict[tuple[str, int], list[str]]:
    """Return the states of each version's replicas, by application and version."""
    versions = tier.versions
    return {
        (each.application, each.version): [replica.state for replica in each.replicas]
        for each in versions
    }


def is_replicated(tier: Tier, count: int) -> bool:
    """Return true if the tier has ``count`` versions, and each has all replicas."""
    found = progress(tier)
    return len(found) == count and all(each == ["complete"] * 2 for each in found.values())


@pytest.mark.full
def test_replicas_follow_the_demotion_and_replace_a_lost_slow_copy(
    group: Callable[..., Endpoint],
) -> None:
    endpoint = group()
    sums = {version: write(endpoint, "a", version) for version in (1, 2)}
    with endpoint.client() as client:
        tier = until(client, "replicated", lambda tier: is_replicated(tier, 2))
        assert states(tier) == {("a", 1): "slow", ("a", 2): "demoted"}
        for version, content in sums.items():
            for root in GROUP:
                check(endpoint.root(f"a/{version}", root=root), content)
        shown = dray(
            *("tier", "show", "burst", "--endpoint", endpoint.address),
            *("--peer-key", endpoint.key),
            DRAY_TOKEN=endpoint.token(),
        )
        assert "; replica on east: complete; replica on west: complete" in shown.stdout, shown
        metrics = metrics_of(endpoint)
        assert metrics['dray_tier_replications_total{tier="burst"}'] == 4
        # The slow copy and the first replica lose a file each.
        for root in ("slow", "east"):
            endpoint.root("a/1/part1", root=root).unlink()
        restored = client.stage_in(StagingRequest(application="a", version=1))
        assert restored.path == "/west/a/1"
        assert restored.transfer is not None
        assert client.wait(restored.transfer, timeout_seconds=90).state == "done"
        check(endpoint.root("a/1", root="fast"), sums[1])
        # The version is demoted and replicated again, so every root has it.
        before = one(tier, "a", 1).demoted_at
        until(
            client,
            "replicated again",
            lambda tier: is_replicated(tier, 2) and one(tier, "a", 1).demoted_at != before,
        )
        for root in ("slow", *GROUP):
            check(endpoint.root("a/1", root=root), sums[1])


def test_a_kill_in_the_middle_of_a_replication_loses_nothing(
    group: Callable[..., Endpoint],
) -> None:
    endpoint = group(read_max="4MiB", read_min="2MiB")
    sums = write(endpoint, "a", 1, 12 * MIB)
    with endpoint.client() as client:
        until(client, "copying", lambda tier: progress(tier).get(("a", 1), [])[:1] == ["copying"])
        time.sleep(1.0)
        tier = client.tier("burst")
        assert progress(tier)["a", 1] == ["copying"] * 2
        transfers = [replica.transfer for replica in one(tier, "a", 1).replicas]
    endpoint.kill()
    check(endpoint.root("a/1", root="slow"), sums)
    endpoint.start()
    with endpoint.client() as client:
        tier = until(client, "replicated", lambda tier: is_replicated(tier, 1))
        assert states(tier) == {("a", 1): "demoted"}
        # The same transfers have continued.
        assert [replica.transfer for replica in one(tier, "a", 1).replicas] == transfers
    for root in ("fast", "slow", *GROUP):
        check(endpoint.root("a/1", root=root), sums)


def has_begun(tier: Tier, version: int) -> bool:
    """Return true if a replication of a version runs or has ended."""
    found = progress(tier).get(("a", version), [])
    return any(state in ("copying", "complete") for state in found)


def test_an_endpoint_killed_at_any_moment_of_a_replication_loses_nothing(
    group: Callable[..., Endpoint], fault: Faults
) -> None:
    endpoint = group(read_max="12MiB", read_min="6MiB")
    sums = {}
    for version in range(1, (30 if FULL else 2) + 1):
        sums[version] = write(endpoint, "a", version, 2 * MIB)
        with endpoint.client() as client:
            until(client, "copying", functools.partial(has_begun, version=version))
        after = fault.chance.uniform(0.0, 0.8)
        time.sleep(after)
        endpoint.kill()
        print(f"replication {version}: killed after {after:.4f} s")
        check(endpoint.root(f"a/{version}", root="slow"), sums[version])
        endpoint.start()
    with endpoint.client() as client:
        until(client, "replicated", lambda tier: is_replicated(tier, len(sums)))
    for version, content in sums.items():
        for root in ("slow", *GROUP):
            check(endpoint.root(f"a/{version}", root=root), content)


def test_a_request_may_ask_for_as_many_copies_as_the_group_makes(
    group: Callable[..., Endpoint],
) -> None:
    endpoint = group()
    sums = fill(endpoint.root("sim/1", root="fast"), 3 * MIB, 5)
    with endpoint.client() as client:

        def ask(replicas: int, version: int | None = 1) -> StagingRequest:
            return StagingRequest(
                "/fast/sim/1",
                recursive=True,
                application="sim",
                version=version,
                replicas=replicas,
            )

        for request in (ask(4), ask(2, None)):
            with pytest.raises(DrayError, match="replicas, but at most"):
                client.stage_out(request)
        client.stage_out(ask(3))
        until(client, "replicated", lambda tier: is_replicated(tier, 1))
    for root in ("slow", *GROUP):
        check(endpoint.root("sim/1", root=root), sums)


def test_a_changed_version_is_replicated_again(group: Callable[..., Endpoint]) -> None:
    endpoint = group()
    write(endpoint, "a", 1)
    with endpoint.client() as client:
        until(client, "replicated", lambda tier: is_replicated(tier, 1))
        shutil.rmtree(endpoint.root("a/1", root="fast"))
        until(client, "slow", lambda tier: states(tier) == {("a", 1): "slow"})
        folder = endpoint.root("a/1", root="fast")
        sums = fill(folder, 6 * MIB, 99)
        (folder / "COMPLETE").write_bytes(b"")
        until(
            client,
            "replicated again",
            lambda tier: is_replicated(tier, 1) and one(tier, "a", 1).bytes == 6 * MIB,
        )
    for root in ("slow", *GROUP):
        check(endpoint.root("a/1", root=root), sums)
