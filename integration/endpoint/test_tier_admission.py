"""A transfer waits until a tier has space for its bytes. If they can never fit, it is refused."""

from __future__ import annotations

import datetime
import functools
import time
from typing import TYPE_CHECKING

import pytest

from dray import DrayError
from dray.client import Place, Request, StagingRequest
from integration.endpoint import tier_scene as scene
from integration.endpoint.tier_scene import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture
def tier(start_endpoint: Callable[..., Endpoint]) -> Callable[..., Endpoint]:
    """Return a function that starts an endpoint with a tier."""
    return functools.partial(scene.start_tier, start_endpoint)


def archive(endpoint: Endpoint, name: str, size: int) -> bytes:
    """Write a file to the slow root. Return its content."""
    data = scene.content(size, name)
    path = endpoint.root(name, root="slow")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return data


def stage_in(client: Client, name: str) -> str:
    """Request to stage a file in. Return the id of the transfer."""
    staged = client.stage_in(StagingRequest(f"/slow/{name}"))
    assert staged.transfer is not None
    return staged.transfer


def now() -> datetime.datetime:
    """Return the present time."""
    return datetime.datetime.now(datetime.timezone.utc)


def test_a_transfer_that_does_not_fit_waits_for_the_demotion(tier: Callable[..., Endpoint]) -> None:
    # A demotion of 20 MiB takes five seconds.
    endpoint = tier(read_max="4MiB", read_min="2MiB")
    data = archive(endpoint, "data/a", 16 * MIB)
    small = archive(endpoint, "data/b", MIB)
    with endpoint.client() as client:
        scene.write(endpoint, "sim", 1, 20 * MIB)
        scene.until(client, "known", lambda tier: scene.state_of(tier, "sim", 1) is not None)
        first = stage_in(client, "data/a")
        found = scene.waiting(client, first)
        assert found.state == "queued"
        assert found.space is not None
        assert (found.space.tier, found.space.bytes) == ("burst", 16 * MIB)
        assert found.space.reason is not None
        assert f"{16 * MIB} bytes do not fit" in found.space.reason
        assert f"{20 * MIB} not yet demoted" in found.space.reason
        assert found.space.free_at is not None
        left = found.space.free_at - now()
        assert datetime.timedelta(0) < left < datetime.timedelta(seconds=20), left
        scene.until(client, "counted", lambda tier: tier.waiting == 16 * MIB)
        # The second transfer does not overtake the first, even if its bytes fit.
        second = stage_in(client, "data/b")
        behind = scene.waiting(client, second)
        assert behind.space is not None
        assert behind.space.reason is not None
        assert f"{16 * MIB} bytes of older requests wait" in behind.space.reason
        for transfer in (first, second):
            done = client.wait(transfer, timeout_seconds=scene.END_SECONDS)
            assert done.state == "done", done
            assert done.space is None
        tier_now = scene.until(client, "freed", lambda tier: tier.used <= 17 * MIB)
        assert scene.state_of(tier_now, "sim", 1) == "slow"
    assert endpoint.root("data/a", root="fast").read_bytes() == data
    assert endpoint.root("data/b", root="fast").read_bytes() == small
    kept = endpoint.root("sim/1/state", root="slow").read_bytes()
    assert kept == scene.content(20 * MIB, "sim1")


def test_a_transfer_larger_than_the_tier_is_refused(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier()
    archive(endpoint, "data/big", 33 * MIB)
    with endpoint.client() as client:
        wanted = f"{33 * MIB} bytes exceed the capacity of {32 * MIB} bytes"
        with pytest.raises(DrayError, match=wanted) as refused:
            stage_in(client, "data/big")
        assert refused.value.kind == "no_space"
        request = Request(sources=[Place("/slow/data/big")], destination=Place("/fast/copy"))
        with pytest.raises(DrayError, match=wanted):
            client.submit(request)
        # A destination outside the fast roots needs no space on the tier.
        elsewhere = Request(sources=[Place("/slow/data/big")], destination=Place("/slow/copy"))
        done = client.wait(client.submit(elsewhere).id, timeout_seconds=scene.END_SECONDS)
        assert done.state == "done"
        assert done.space is None


def test_pinned_data_in_the_way_is_named(tier: Callable[..., Endpoint]) -> None:
    endpoint = tier()
    archive(endpoint, "data/a", 16 * MIB)
    with endpoint.client() as client:
        scene.write(endpoint, "sim", 1, 20 * MIB)
        demoted = scene.until(
            client, "demoted", lambda tier: scene.state_of(tier, "sim", 1) == "demoted"
        )
        copy = demoted.versions[0].transfer
        assert copy is not None
        # A copy that is pinned for two days cannot be freed in time.
        client.pin_staging(copy, 2 * 86_400)
        pinned = scene.until(client, "pinned", lambda tier: tier.versions[0].kept == "pinned")
        assert pinned.versions[0].state == "demoted"
        with pytest.raises(DrayError, match=f"{20 * MIB} pinned") as refused:
            stage_in(client, "data/a")
        assert f"{16 * MIB} bytes exceed the {12 * MIB} bytes" in str(refused.value)
        # A shorter pin lets the transfer wait until the end of the pin.
        client.pin_staging(copy, 8)
        scene.until(
            client,
            "pinned for less",
            lambda tier: (
                (until := tier.versions[0].pinned_until) is not None
                and until < now() + datetime.timedelta(seconds=9)
            ),
        )
        transfer = client.wait(retried(client, "data/a"), timeout_seconds=scene.END_SECONDS)
        assert transfer.state == "done", transfer
        assert client.tier("burst").versions[0].state == "slow"


def retried(client: Client, name: str) -> str:
    """Stage a file in as soon as the tier knows the new end of the pin. Return the id."""
    for _ in range(30):
        try:
            transfer = stage_in(client, name)
        except DrayError:
            time.sleep(0.1)
            continue
        found = scene.waiting(client, transfer)
        assert found.space is not None
        assert f"{20 * MIB} pinned" in (found.space.reason or "")
        assert found.space.free_at is not None
        return transfer
    raise AssertionError(name)


def test_a_waiting_transfer_survives_a_restart_of_the_endpoint(
    tier: Callable[..., Endpoint],
) -> None:
    endpoint = tier(read_max="4MiB", read_min="2MiB")
    data = archive(endpoint, "data/a", 16 * MIB)
    with endpoint.client() as client:
        scene.write(endpoint, "sim", 1, 20 * MIB)
        scene.until(client, "known", lambda tier: scene.state_of(tier, "sim", 1) is not None)
        transfer = stage_in(client, "data/a")
        scene.waiting(client, transfer)
    endpoint.kill()
    endpoint.start()
    with endpoint.client() as client:
        done = client.wait(transfer, timeout_seconds=scene.END_SECONDS)
        assert done.state == "done", done
    assert endpoint.root("data/a", root="fast").read_bytes() == data


def test_a_declared_period_above_the_bound_is_refused(tier: Callable[..., Endpoint]) -> None:
    # The bound is 32 MiB / (1 - 200/300) = 96 MiB in a period of 600 seconds.
    endpoint = tier()
    archive(endpoint, "data/a", 10 * MIB)
    request = StagingRequest("/slow/data/a", application="sim", period_seconds=60)
    with endpoint.client() as client:
        with pytest.raises(DrayError, match="can take at most") as refused:
            client.stage_in(request)
        assert str(96 * MIB)[:6] in str(refused.value)
        fitting = StagingRequest("/slow/data/a", application="sim", period_seconds=600)
        staged = client.stage_in(fitting)
        assert staged.transfer is not None
        done = client.wait(staged.transfer, timeout_seconds=scene.END_SECONDS)
        assert done.state == "done"
