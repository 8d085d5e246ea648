"""A tier demotes what applications write, keeps the newest versions, and frees the space."""

from __future__ import annotations

import functools
import hashlib
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from dray import DrayError
from dray.client import StagingRequest
from dray.testing.endpoints import Root
from integration.endpoint.raw import ask, dray
from integration.endpoint.tier_scene import END_SECONDS, MARKER, MIB, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.client import Tier, TierVersion
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def tier_of(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - keys of the configuration
    """Return the configuration of the tests' tier, with these changes."""
    return {
        "name": "burst",
        "fast": ["fast"],
        "slow": "slow",
        "capacity": 64 * MIB,
        "watermark": 0.5,
        "period": 600,
        "write_max": "400MiB",
        "write_min": "300MiB",
        "read_max": "200MiB",
        "read_min": "10MiB",
        "versions": "{application}/{version}",
        "complete": f"marker:{MARKER}",
        "owner": "alice",
        **changes,
    }


@pytest.fixture
def buffer(start_endpoint: Callable[..., Endpoint]) -> Callable[..., Endpoint]:
    """Return a function that starts an endpoint with a tier."""

    def start(**changes: Any) -> Endpoint:  # noqa: ANN401 - keys of the configuration
        roots = [Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"})]
        return start_endpoint("bb", roots=roots, config={"tier": [tier_of(**changes)]})

    return start


def fill(folder: Path, size: int, seed: int) -> dict[str, str]:
    """Write the files of a version. Return their checksums by name."""
    folder.mkdir(parents=True)
    sums = {}
    for index in range(3):
        name = f"part{index}" if index else "sub/part0"
        (folder / name).parent.mkdir(exist_ok=True)
        block = hashlib.sha256(f"{seed}/{index}".encode()).digest()
        data = (block * (size // 3 // len(block) + 1))[: size // 3]
        (folder / name).write_bytes(data)
        sums[name] = hashlib.sha256(data).hexdigest()
    return sums


def write(
    endpoint: Endpoint, application: str, version: int, size: int = 3 * MIB
) -> dict[str, str]:
    """Write a version as an application does, with the marker at the end."""
    folder = endpoint.root(f"{application}/{version}", root="fast")
    sums = fill(folder, size, hash((application, version)))
    (folder / MARKER).write_bytes(b"")
    return sums


def check(folder: Path, sums: dict[str, str]) -> None:
    """Fail unless every file in a folder has its checksum."""
    for name, wanted in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == wanted, folder / name


def metrics_of(endpoint: Endpoint) -> dict[str, float]:
    """Return the values of an endpoint's metrics, by name and labels."""
    answer = ask(endpoint, "GET", "/metrics", token=endpoint.token(subject="root"))
    assert answer.code == 200, answer
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def states(tier: Tier) -> dict[tuple[str, int], str]:
    """Return the state of each version of a tier, by application and version."""
    return {(one.application, one.version): one.state for one in tier.versions}


def one(tier: Tier, application: str, version: int) -> TierVersion:
    """Return the version of an application in a tier."""
    (found,) = (
        one for one in tier.versions if (one.application, one.version) == (application, version)
    )
    return found


def settled(tier: Tier) -> bool:
    """Return true if a tier has versions, and none waits for its demotion."""
    return bool(tier.versions) and not {"written", "demoting"} & set(states(tier).values())


def has_settled(tier: Tier, *, count: int) -> bool:
    """Return true if a tier has ``count`` versions, and none waits for its demotion."""
    return settled(tier) and len(tier.versions) == count


def test_older_versions_leave_the_fast_root_and_newest_ones_stay(
    buffer: Callable[..., Endpoint],
) -> None:
    endpoint = buffer(watermark=1.0)
    sums = {}
    for application in ("a", "b", "c"):
        for version in (1, 2, 10):
            sums[application, version] = write(endpoint, application, version)
    (endpoint.root("a/11", root="fast")).mkdir()
    endpoint.root("a/11/part", root="fast").write_bytes(b"without a marker")
    with endpoint.client() as client:
        tier = until(client, "settled", lambda tier: len(tier.versions) == 9 and settled(tier))
        tier = until(client, "freed", lambda tier: list(states(tier).values()).count("slow") == 6)
        assert client.tiers()[0].name == "burst"
    wanted = {key: "demoted" if key[1] == 10 else "slow" for key in sums}
    assert states(tier) == wanted
    for (application, version), content in sums.items():
        check(endpoint.root(f"{application}/{version}", root="slow"), content)
        fast = endpoint.root(f"{application}/{version}", root="fast")
        assert fast.exists() == (version == 10)
        if version == 10:
            check(fast, content)
    assert endpoint.root("a/11/part", root="fast").exists()
    assert not endpoint.root("a/11", root="slow").exists()


def test_space_is_freed_above_the_watermark_except_for_pinned_versions(
    buffer: Callable[..., Endpoint],
) -> None:
    endpoint = buffer()
    sums = {name: write(endpoint, name, 1, 9 * MIB) for name in ("a", "b", "c")}
    with endpoint.client() as client:
        # Three newest versions fit below the watermark of 32 MiB.
        tier = until(client, "settled", lambda tier: len(tier.versions) == 3 and settled(tier))
        assert set(states(tier).values()) == {"demoted"}
        for name in ("a", "b"):
            copy = one(tier, name, 1).transfer
            assert copy is not None
            client.pin_staging(copy, 600)
        sums["d"] = write(endpoint, "d", 1, 9 * MIB)
        sums["e"] = write(endpoint, "e", 1, 9 * MIB)
        tier = until(
            client,
            "freed",
            lambda tier: len(tier.versions) == 5 and settled(tier) and tier.used <= tier.watermark,
        )
        found = states(tier)
        assert found["a", 1] == found["b", 1] == "demoted"
        assert sorted(found.values()) == ["demoted", "demoted", "demoted", "slow", "slow"]
        assert one(tier, "a", 1).kept == "pinned"
        # If pinned versions exceed the watermark, the tier reports how many bytes are missing.
        for count, name in ((6, "f"), (7, "g")):
            sums[name] = write(endpoint, name, 1, 15 * MIB)
            until(client, "settled", functools.partial(has_settled, count=count))
        tier = until(client, "as free as it can be", lambda tier: tier.used <= tier.watermark)
        assert {"a", "b"} <= {key[0] for key, state in states(tier).items() if state == "demoted"}
    for name, content in sums.items():
        check(endpoint.root(f"{name}/1", root="slow"), content)


def test_a_kill_in_the_middle_of_a_demotion_loses_nothing(
    buffer: Callable[..., Endpoint],
) -> None:
    endpoint = buffer(read_max="4MiB", read_min="2MiB", watermark=1.0)
    sums = {version: write(endpoint, "a", version, 12 * MIB) for version in (1, 2)}
    with endpoint.client() as client:
        until(client, "demoting", lambda tier: "demoting" in states(tier).values())
        time.sleep(1.0)
    endpoint.kill()
    for version, content in sums.items():
        check(endpoint.root(f"a/{version}", root="fast"), content)
    endpoint.start()
    with endpoint.client() as client:
        tier = until(client, "settled", lambda tier: len(tier.versions) == 2 and settled(tier))
        assert states(tier)["a", 2] == "demoted"
    for version, content in sums.items():
        check(endpoint.root(f"a/{version}", root="slow"), content)
    check(endpoint.root("a/2", root="fast"), sums[2])


def test_a_restart_gets_the_newest_version_from_the_fastest_place(
    buffer: Callable[..., Endpoint],
) -> None:
    endpoint = buffer(watermark=1.0)
    sums = {version: write(endpoint, "a", version) for version in (7, 8)}
    with endpoint.client() as client:
        until(client, "freed", lambda tier: states(tier) == {("a", 7): "slow", ("a", 8): "demoted"})
        hit = client.stage_in(StagingRequest(application="a", pin_seconds=600))
        assert (hit.hit, hit.state, hit.version) == (True, "staged", 8)
        assert (hit.path, hit.to) == ("/slow/a/8", "/fast/a/8")
        assert client.tier("burst").versions[0].pinned_until is not None
        miss = client.stage_in(StagingRequest(application="a", version=7))
        assert (miss.hit, miss.version) == (False, 7)
        assert miss.transfer is not None
        done = client.wait(miss.transfer, timeout_seconds=END_SECONDS)
        assert done.state == "done"
        until(client, "restored", lambda tier: states(tier)["a", 7] == "demoted")
        check(endpoint.root("a/7", root="fast"), sums[7])
        with pytest.raises(DrayError, match="no tier of this endpoint has a complete version"):
            client.stage_in(StagingRequest(application="b"))
        tier = until(client, "counted", lambda tier: (tier.restarts, tier.hits) == (2, 1))
        shown = dray(
            *("top", endpoint.address, "--once", "--peer-key", endpoint.key),
            DRAY_TOKEN=endpoint.token(),
        )
        assert shown.returncode == 0, shown
        assert "burst: fast -> slow, 6.0 MiB of 64.0 MiB used" in shown.stdout
        assert "1 of 2 restarts found the fast copy (50 %)" in shown.stdout
        metrics = metrics_of(endpoint)
        assert metrics['dray_tier_restarts_total{tier="burst"}'] == 2
        assert metrics['dray_tier_hits_total{tier="burst"}'] == 1
        assert metrics['dray_tier_demotions_total{tier="burst"}'] == 2
        assert metrics['dray_tier_demoted_bytes_total{tier="burst"}'] == 6 * MIB
        assert metrics['dray_tier_deletions_total{tier="burst"}'] == 1
        assert metrics['dray_tier_deleted_bytes_total{tier="burst"}'] == 3 * MIB
        assert metrics['dray_tier_used_bytes{tier="burst"}'] == tier.used == 6 * MIB
        assert metrics['dray_tier_versions{tier="burst",state="demoted"}'] == 2
        # Another owner does not see the versions.
        with endpoint.client(subject="bob") as bob:
            assert bob.tier("burst").versions == ()
            with pytest.raises(DrayError):
                bob.stage_in(StagingRequest(application="a"))


def test_a_version_that_is_written_again_is_demoted_again(
    buffer: Callable[..., Endpoint],
) -> None:
    endpoint = buffer(watermark=1.0)
    write(endpoint, "a", 1)
    with endpoint.client() as client:
        until(client, "demoted", lambda tier: states(tier) == {("a", 1): "demoted"})
        shutil.rmtree(endpoint.root("a/1", root="fast"))
        until(client, "slow", lambda tier: states(tier) == {("a", 1): "slow"})
        folder = endpoint.root("a/1", root="fast")
        sums = fill(folder, 6 * MIB, 99)
        (folder / MARKER).write_bytes(b"")
        until(client, "demoted again", lambda tier: states(tier) == {("a", 1): "demoted"})
    check(endpoint.root("a/1", root="slow"), sums)


def test_a_staged_out_version_belongs_to_the_tier(buffer: Callable[..., Endpoint]) -> None:
    endpoint = buffer(versions="{application}/v{version}", watermark=1.0)
    folder = endpoint.root("sim/out", root="fast")
    sums = fill(folder, 3 * MIB, 5)
    with endpoint.client() as client:
        request = StagingRequest(
            "/fast/sim/out",
            recursive=True,
            application="sim",
            version=3,
            mtbf_seconds=1234,
            period_seconds=60,
        )
        staged = client.stage_out(request)
        tier = until(client, "demoted", lambda tier: states(tier) == {("sim", 3): "demoted"})
        version = one(tier, "sim", 3)
        assert (version.transfer, version.mtbf_seconds) == (staged.transfer, 1234)
        # At one version per 60 s, the application writes ten versions in the period of 600 s.
        tier = until(client, "measured", lambda tier: tier.versions[0].bytes == 3 * MIB)
        until(client, "expected", lambda tier: tier.dwpp == 30 * MIB)
        assert client.stage_in(StagingRequest(application="sim")).hit
    check(endpoint.root("sim/out", root="slow"), sums)


def test_a_version_that_cannot_be_read_does_not_stop_the_others(
    buffer: Callable[..., Endpoint],
) -> None:
    endpoint = buffer()
    deep = endpoint.root("deep/1", root="fast") / "/".join("d" for _ in range(140))
    deep.mkdir(parents=True)
    sums = write(endpoint, "sim", 1)
    with endpoint.client() as client:
        tier = until(client, "demoted", lambda tier: states(tier) == {("sim", 1): "demoted"})
        assert tier.error is None, tier
    check(endpoint.root("sim/1", root="slow"), sums)
    said = endpoint.log_text()
    assert said.count("cannot read the version /fast/deep/1") == 1, said


def test_a_version_is_demoted_as_soon_as_its_transfer_is_done(
    buffer: Callable[..., Endpoint],
) -> None:
    endpoint = buffer(capacity=256 * MIB)
    with endpoint.client() as client:
        for version in range(12):
            fill(endpoint.root(f"sim/{version}", root="fast"), 64 << 10, version)
            request = StagingRequest(
                f"/fast/sim/{version}", recursive=True, application="sim", version=version
            )
            staged = client.stage_out(request)
            client.wait(staged.id, timeout_seconds=END_SECONDS)
            assert one(client.tier("burst"), "sim", version).state == "demoted"
