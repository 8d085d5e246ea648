"""The storage targets that the sessions of an endpoint use."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StorageTarget", "StorageTargets"]


@dataclass(frozen=True, slots=True)
class StorageTarget:
    """A storage target that running sessions of the endpoint read or write.

    :param end: ``source`` or ``sink``.
    :param sessions: number of sessions that use the target.
    :param under_way: number of objects that sessions are reading from the target, or that wait to
        be written to it.
    :param service_seconds: average time for which an object counts in ``under_way``.
    :param state: ``fair``, ``congested`` or ``stuck``.
    """

    end: str
    name: str
    sessions: int = 0
    under_way: int = 0
    service_seconds: float | None = None
    state: str = "fair"


@dataclass(frozen=True, slots=True)
class StorageTargets:
    """The storage targets of an endpoint."""

    targets: tuple[StorageTarget, ...] = ()
