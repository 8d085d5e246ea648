"""Write jobs: applications take turns to write versions to the fast roots of a tier."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING

import pytest

from dray import DrayError
from dray.client import StagingRequest, WriteJob, WriteRequest
from integration.endpoint import tier_scene as scene
from integration.endpoint.raw import ask, dray
from integration.endpoint.tier_scene import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client, Tier
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture
def tier(start_endpoint: Callable[..., Endpoint]) -> Callable[..., Endpoint]:
    """Return a function that starts an endpoint with a tier."""
    return functools.partial(scene.start_tier, start_endpoint)


def is_demoted(tier: Tier, name: str) -> bool:
    """Return true if version 1 of an application is on both roots."""
    return scene.state_of(tier, name, 1) == "demoted"


def until(client: Client, job: str, fits: Callable[[WriteJob], bool]) -> WriteJob:
    """Wait until ``fits`` accepts a write job. Return the job."""
    end = time.monotonic() + scene.END_SECONDS
    while True:
        found = client.write_job(job)
        if fits(found):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.1)


def granted(client: Client, job: str) -> WriteJob:
    """Wait until a write job is granted. Return the job."""
    return until(client, job, lambda job: job.state == "granted")


def put(endpoint: Endpoint, job: WriteJob, size: int) -> None:
    """Write the version of a write job, without the marker."""
    root, _, below = job.path.lstrip("/").partition("/")
    folder = endpoint.root(below, root=root)
    folder.mkdir(parents=True)
    (folder / "state").write_bytes(scene.content(size, job.application))


def test_applications_do_not_overlap_and_a_completed_version_is_demoted(
    tier: Callable[..., Endpoint],
) -> None:
    endpoint = tier()
    with endpoint.client() as client:
        first = client.request_write("burst", WriteRequest("a", 1, 4 * MIB, files=1))
        second = client.request_write("burst", WriteRequest("b", 1, 4 * MIB))
        assert (first.state, first.placement, first.path) == ("waiting", "fast", "/fast/a/1")
        job = granted(client, first.id)
        assert job.rate_max == 400 * MIB
        assert job.expires_at is not None
        with pytest.raises(DrayError, match="the write job is waiting"):
            client.complete_write(second.id)
        with pytest.raises(DrayError, match="no file exists at /fast/a/1"):
            client.complete_write(first.id)
        behind = until(client, second.id, lambda job: job.starts_at is not None)
        assert (behind.state, behind.reason) == (
            "waiting",
            "waits until the application a has written to /fast",
        )
        put(endpoint, job, 4 * MIB)
        time.sleep(3.0)
        assert client.write_job(second.id).state == "waiting"
        assert scene.state_of(client.tier("burst"), "a", 1) is None, "only the job completes it"
        assert client.complete_write(first.id).state == "ended"
        assert client.complete_write(first.id).state == "ended", "again"
        granted(client, second.id)
        scene.until(client, "demoted", lambda tier: scene.state_of(tier, "a", 1) == "demoted")
        assert client.delete_write(second.id).state == "ended"
        client.request_write("burst", WriteRequest("c", 1, MIB))
        with pytest.raises(DrayError, match="another write job of this version"):
            client.request_write("burst", WriteRequest("c", 1, MIB))
        restart = client.stage_in(StagingRequest(application="a"))
        assert (restart.hit, restart.version) == (True, 1)
    assert endpoint.root("a/1/state", root="slow").read_bytes() == scene.content(4 * MIB, "a")


def test_another_number_of_files_is_not_complete(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier()
    with endpoint.client() as client:
        job = client.request_write("burst", WriteRequest("a", 1, MIB, files=2))
        put(endpoint, granted(client, job.id), MIB)
        with pytest.raises(DrayError, match="has 1 files, but the request of the job states 2"):
            client.complete_write(job.id)
        endpoint.root("a/1/more", root="fast").write_bytes(b"")
        assert client.complete_write(job.id).state == "ended"


def test_an_expired_lease_frees_the_device(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier()
    with endpoint.client() as client:
        first = client.request_write("burst", WriteRequest("a", 1, MIB, lease_seconds=2))
        second = client.request_write("burst", WriteRequest("b", 1, MIB))
        granted(client, first.id)
        # A renewed lease does not expire.
        for _ in range(5):
            time.sleep(1.0)
            client.renew_write(first.id)
        assert client.write_job(second.id).state == "waiting"
        granted(client, second.id)
        expired = client.write_job(first.id)
        assert (expired.state, expired.reason) == (
            "expired",
            "no API call about the write job arrived before the lease of the job ended",
        )
        with pytest.raises(DrayError, match="the write job is expired"):
            client.complete_write(first.id)


def test_a_restart_of_the_endpoint_keeps_the_jobs(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier()
    with endpoint.client() as client:
        first = client.request_write("burst", WriteRequest("a", 1, MIB))
        second = client.request_write("burst", WriteRequest("b", 1, MIB))
        granted(client, first.id)
    endpoint.kill()
    endpoint.start()
    with endpoint.client() as client:
        assert client.write_job(first.id).state == "granted"
        behind = until(client, second.id, lambda job: job.starts_at is not None)
        assert behind.reason == "waits until the application a has written to /fast"
        put(endpoint, client.write_job(first.id), MIB)
        client.complete_write(first.id)
        granted(client, second.id)


def test_a_job_waits_for_space_and_one_larger_than_the_tier_is_refused(
    tier: Callable[..., Endpoint],
) -> None:
    endpoint = tier(read_max="4MiB", read_min="2MiB")
    with endpoint.client() as client:
        with pytest.raises(DrayError, match="exceed the capacity"):
            client.request_write("burst", WriteRequest("a", 1, 33 * MIB))
        with pytest.raises(DrayError, match="can take at most"):
            client.request_write("burst", WriteRequest("a", 1, MIB, period_seconds=1))
        scene.write(endpoint, "sim", 1, 20 * MIB)
        scene.until(client, "known", lambda tier: scene.state_of(tier, "sim", 1) is not None)
        # The job's application fails more often than that of the version on the tier, so the job
        # does not bypass the tier.
        request = WriteRequest("a", 1, 16 * MIB, mtbf_seconds=60)
        job = client.request_write("burst", request)
        found = until(client, job.id, lambda job: "not yet demoted" in (job.reason or ""))
        assert f"{16 * MIB} bytes do not fit" in (found.reason or "")
        assert found.starts_at is not None
        granted(client, job.id)
        kept = scene.until(client, "freed", lambda tier: tier.used == 0)
        assert scene.state_of(kept, "sim", 1) == "slow"


def test_a_colder_version_is_written_to_the_slow_root(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier()
    with endpoint.client() as client:
        hot = WriteRequest("hot", 1, 20 * MIB, mtbf_seconds=60)
        job = granted(client, client.request_write("burst", hot).id)
        put(endpoint, job, 20 * MIB)
        client.complete_write(job.id)
        scene.until(client, "written", lambda tier: tier.dwsf == 20 * MIB)
        # The new version and the written bytes exceed the capacity together. The application `cold`
        # fails less often than `hot`, so its version is written to the slow root.
        cold = WriteRequest("cold", 1, 16 * MIB, mtbf_seconds=3600)
        slow = client.request_write("burst", cold)
        assert (slow.state, slow.placement, slow.path) == ("granted", "slow", "/slow/cold/1")
        assert slow.rate_max is None
        put(endpoint, slow, 16 * MIB)
        assert client.complete_write(slow.id).state == "ended"
        tier_now = scene.until(
            client, "known", lambda tier: scene.state_of(tier, "cold", 1) == "slow"
        )
        assert tier_now.versions[0].mtbf_seconds == 3600
        # A version of the same size that fails more often is written to the fast root.
        warm = client.request_write("burst", WriteRequest("warm", 1, 16 * MIB, mtbf_seconds=30))
        assert warm.placement == "fast"
        client.delete_write(warm.id)
        restart = client.stage_in(StagingRequest(application="cold"))
        assert restart.transfer is not None
        done = client.wait(restart.transfer, timeout_seconds=scene.END_SECONDS)
        assert done.state == "done"
        scene.until(client, "restored", lambda tier: scene.state_of(tier, "cold", 1) == "demoted")
    assert endpoint.root("cold/1/state", root="fast").read_bytes() == scene.content(
        16 * MIB, "cold"
    )


def test_a_job_is_its_owners(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier()
    with endpoint.client() as client, endpoint.client(subject="bob") as bob:
        request = WriteRequest("a", 1, MIB, id="one")
        assert client.request_write("burst", request).id == "one"
        assert client.request_write("burst", request).id == "one", "the same job"
        with pytest.raises(DrayError, match="belongs to another owner"):
            bob.write_job("one")
        with pytest.raises(DrayError, match="belongs to another owner"):
            bob.delete_write("one")
        with pytest.raises(DrayError, match="another write job has the requested id"):
            bob.request_write("burst", request)
        with pytest.raises(DrayError, match="no tier of this name"):
            client.request_write("other", request)
        with pytest.raises(DrayError, match="application"):
            client.request_write("burst", WriteRequest("a/../b", 1, MIB))


def test_datawarp_owns_space_and_takes_no_turns(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier(policy="datawarp")
    with endpoint.client() as client:
        scene.until(client, "shown", lambda tier: tier.dwpp_max == 32 * MIB)
        jobs = [client.request_write("burst", WriteRequest(name, 1, 12 * MIB)).id for name in "abc"]
        assert granted(client, jobs[0]).state == "granted"
        assert granted(client, jobs[1]).state == "granted"
        # The third job waits for space. It does not wait until other applications have written.
        third = until(client, jobs[2], lambda job: "do not fit" in (job.reason or ""))
        assert third.state == "waiting"
        assert client.write_job(jobs[0]).state == "granted"
        client.delete_write(jobs[0])
        granted(client, jobs[2])
        with pytest.raises(DrayError, match="the policy DataWarp allows"):
            client.request_write("burst", WriteRequest("d", 1, 20 * MIB, period_seconds=300))


def test_the_order_of_victims_and_the_bypass_follow_the_configuration(
    tier: Callable[..., Endpoint],
) -> None:
    endpoint = tier(order="fifo", bypass={"ratio": 0.9}, prior_mtbf=100, prior_weight=2.0)
    with endpoint.client() as client:
        # With the order `fifo`, the older version of `a` leaves the fast root, although `a` fails
        # most often.
        for name, mtbf in (("a", 50), ("b", 5_000)):
            request = WriteRequest(name, 1, 12 * MIB, mtbf_seconds=mtbf)
            job = granted(client, client.request_write("burst", request).id)
            put(endpoint, job, 12 * MIB)
            client.complete_write(job.id)
            demoted = functools.partial(is_demoted, name=name)
            scene.until(client, "demoted", demoted)
        # 200 MiB/s are less than 0.9 times 300 MiB/s, so no job bypasses the tier.
        cold = WriteRequest("c", 1, 12 * MIB, mtbf_seconds=90_000)
        job = client.request_write("burst", cold)
        assert job.placement == "fast"
        granted(client, job.id)
        tier_now = client.tier("burst")
        assert scene.state_of(tier_now, "a", 1) == "slow"
        assert scene.state_of(tier_now, "b", 1) == "demoted"
        put(endpoint, client.write_job(job.id), MIB)
        client.complete_write(job.id)
        # An application without a declaration has the MTBF of the prior.
        scene.write(endpoint, "plain", 1, MIB)
        scene.until(
            client,
            "estimated",
            lambda tier: any(
                one.application == "plain" and 100 <= one.mtbf_seconds <= 160
                for one in tier.versions
            ),
        )


def test_write_jobs_are_listed_page_by_page(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier()
    with endpoint.client() as client, endpoint.client(subject="bob") as bob:
        wanted = [client.request_write("burst", WriteRequest("a", n, MIB)).id for n in range(5)]
        bob.request_write("burst", WriteRequest("b", 1, MIB))
        found = list(client.writes("burst", limit=2))
        assert [job.id for job in found] == wanted[::-1]
        assert [job.application for job in bob.writes("burst")] == ["b"]
        client.delete_write(wanted[0])
        ended = list(client.writes("burst", state="ended"))
        assert [(job.id, job.state) for job in ended] == [(wanted[0], "ended")]
        assert list(client.writes("burst", application="none")) == []
        with pytest.raises(DrayError, match="no tier of this name"):
            list(client.writes("other"))
        answer = ask(endpoint, "GET", "/v1/tiers/burst/writes?cursor=x", token=endpoint.token())
        answer.refused(400, "invalid_request")
        lease = client.write_job(wanted[1]).expires_at
        assert (
            next(job for job in client.writes("burst") if job.id == wanted[1]).expires_at == lease
        )
        shown = dray(
            *("tier", "writes", "burst", "--state", "ended", "--endpoint", endpoint.address),
            *("--peer-key", endpoint.key),
            DRAY_TOKEN=endpoint.token(),
        )
        assert shown.returncode == 0, shown
        assert shown.stdout.startswith(f"{wanted[0]} ended: a 0, 1.0 MiB to /fast/a/0"), shown
        assert len(shown.stdout.splitlines()) == 1


def test_the_awaiting_client_lists_write_jobs(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier()

    async def listed() -> list[str]:
        async with endpoint.async_client() as client:
            await client.request_write("burst", WriteRequest("a", 1, MIB, id="one"))
            return [job.id async for job in client.writes("burst")]

    assert asyncio.run(listed()) == ["one"]
