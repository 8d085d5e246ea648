"""Types of an endpoint's description of itself."""

from __future__ import annotations

# The reader of answers needs the types of the fields at run time.
from collections.abc import Mapping  # noqa: TC003
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EndpointInfo", "Health", "RetryInfo", "RootInfo", "Scheduling", "You"]


@dataclass(frozen=True, slots=True)
class RootInfo:
    """An exported root, and the caller's permissions on it."""

    name: str
    read: bool = False
    write: bool = False
    stage: bool = False


@dataclass(frozen=True, slots=True)
class You:
    """The identity of the caller at the endpoint."""

    principal: str | None = None
    owner: str | None = None
    administrator: bool = False


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The policy that decides which transfers of an endpoint run, and which are held.

    :param policy: name of the policy. The endpoint's configuration lists the names.
    :param max_running: maximum number of concurrent transfers. ``None`` means the default of the
        policy.
    :param quota: with ``round_robin``: number of bytes in one turn.
    :param round_robin_by: with ``round_robin``: ``owners`` if the owners of transfers take turns,
        ``pairs`` if the pairs of endpoints take turns.
    :param aging_seconds: with ``priority``: time after which the priority of a waiting transfer
        rises by one.
    :param patience_seconds: with ``fair``: at most once in this time, the endpoint first starts the
        transfer that has waited longest, if it has waited longer than this time.
    :param held_max: maximum number of held transfers that keep their sessions.
    """

    policy: str = "fair"
    max_running: int | None = None
    quota: int = 0
    round_robin_by: str = "owners"
    aging_seconds: int = 0
    patience_seconds: int = 0
    held_max: int = 0


@dataclass(frozen=True, slots=True)
class RetryInfo:
    """The retries of a transfer.

    :param tries: number of consecutive tries without new durable data before the transfer fails.
    :param interval_seconds: time between two tries. After the loss of a session that lasted at
        least one second and made data durable, the endpoint first tries every 0.2 s for one second.
    """

    tries: int = 5
    interval_seconds: int = 10


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """An endpoint's description of itself.

    :param key: fingerprint of the endpoint's key, ``sha256:`` and 64 hexadecimal digits. Clients
        use it as ``pin``, and tickets as ``peer_key``.
    :param address: data port of the endpoint.
    :param limits: limits of the endpoint, unparsed.
    :param retry: retries of a transfer whose request has no ``retry``.
    :param scheduling: the policy in force.
    """

    name: str
    version: str
    key: str
    address: str | None = None
    roots: tuple[RootInfo, ...] = ()
    you: You = field(default_factory=You)
    limits: Mapping[str, Any] = field(default_factory=dict)
    retry: RetryInfo = field(default_factory=RetryInfo)
    scheduling: Scheduling = field(default_factory=Scheduling)


@dataclass(frozen=True, slots=True)
class Health:
    """The health of an endpoint: ``ok``, or ``stopping`` if it accepts no new work."""

    status: str
