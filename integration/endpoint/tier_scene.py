"""A tier of a real endpoint, and the applications that use it, for the tests of the tier."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dray.testing.endpoints import Root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.client import Client, Tier, Transfer
    from dray.testing.endpoints import Endpoint

MIB = 1 << 20
END_SECONDS = 90.0
MARKER = "COMPLETE"


def tier_keys(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the configuration of a tier of 32 MiB. The arguments change its keys."""
    return {
        "name": "burst",
        "fast": ["fast"],
        "slow": "slow",
        "capacity": 32 * MIB,
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


def start_tier(start_endpoint: Callable[..., Endpoint], **changes: Any) -> Endpoint:  # noqa: ANN401
    """Start an endpoint with a tier of 32 MiB. The arguments change keys of the tier."""
    tier = tier_keys(**{"watermark": 1.0, **changes})
    roots = [Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"})]
    return start_endpoint("bb", roots=roots, config={"tier": [tier]})


def content(size: int, seed: str) -> bytes:
    """Return ``size`` bytes that depend on ``seed``."""
    block = (seed * 64).encode()
    return (block * (size // len(block) + 1))[:size]


def write(endpoint: Endpoint, application: str, version: int, size: int) -> None:
    """Write a version to the fast root as an application does, with the marker at the end."""
    folder: Path = endpoint.root(f"{application}/{version}", root="fast")
    folder.mkdir(parents=True)
    (folder / "state").write_bytes(content(size, f"{application}{version}"))
    (folder / MARKER).write_bytes(b"")


def until(client: Client, what: str, fits: Callable[[Tier], bool]) -> Tier:
    """Wait until ``fits`` accepts the tier. Return the tier."""
    end = time.monotonic() + END_SECONDS
    while True:
        tier = client.tier("burst")
        if fits(tier):
            return tier
        assert time.monotonic() < end, f"not {what}: {tier}"
        time.sleep(0.2)


def state_of(tier: Tier, application: str, version: int) -> str | None:
    """Return the state of a version, or None if the tier does not know the version."""
    for one in tier.versions:
        if (one.application, one.version) == (application, version):
            return one.state
    return None


def waiting(client: Client, transfer: str) -> Transfer:
    """Return a transfer as soon as it has a reason to wait for space."""
    end = time.monotonic() + END_SECONDS
    while True:
        found = client.transfer(transfer)
        assert not found.is_terminal, found
        if found.space is not None and found.space.reason is not None:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.1)
