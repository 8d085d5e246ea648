"""The tiers of an endpoint: fast roots before a slow root, and the versions on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - the reader of answers resolves the types

__all__ = ["Tier", "TierDevice", "TierReplica", "TierVersion", "Tiers", "WriteJob"]


@dataclass(frozen=True, slots=True)
class TierReplica:
    """A copy of a version on a further root of the replication group.

    :param state: ``waiting``, ``copying`` or ``complete``.
    :param error: error of the last transfer, if it failed.
    """

    root: str
    state: str = "waiting"
    path: str | None = None
    replicated_at: datetime | None = None
    transfer: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TierVersion:
    """A version on a tier: one checkpoint that an application has written.

    :param state: ``written``, ``demoting``, ``demoted``, ``deleting`` or ``slow``.
    :param mtbf_seconds: mean time between failures of the application.
    :param transfer: id of the latest transfer that copied the version.
    :param kept: reason for which the fast copy is kept.
    :param error: error of the last demotion (copy to the slow root), if this demotion failed.
    :param replicas: copies on the further roots of the replication group.
    """

    application: str
    version: int
    state: str
    fast_path: str
    slow_path: str
    bytes: int = 0
    written_at: datetime | None = None
    used_at: datetime | None = None
    demoted_at: datetime | None = None
    pinned_until: datetime | None = None
    mtbf_seconds: int = 0
    transfer: str | None = None
    kept: str | None = None
    error: str | None = None
    replicas: tuple[TierReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class TierDevice:
    """One fast root of a tier. Each fast root is one device.

    :param used: bytes of the versions and staged copies on the root.
    :param free: free bytes of the file system of the root.
    :param error: reason for which the root cannot be reached.
    """

    root: str
    used: int = 0
    free: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tier:
    """The state of a tier. Sizes are in bytes, rates in bytes per second.

    :param watermark: bytes above which fast copies are deleted.
    :param rounds: number of times that the endpoint has scanned the tier since its start. Before
        the first scan, bytes, thresholds and rates are not known, and are 0.
    :param used: bytes of all versions on the fast roots.
    :param incoming: bytes that running transfers have not yet written to the fast roots.
    :param waiting: bytes of requests that wait for space on the fast roots.
    :param dwsf: bytes that all applications have written in the current period.
    :param dwpp: bytes that all applications are expected to write in a period.
    :param dwpp_max: the largest ``dwpp`` for which the tier never fills up.
    :param pattern: times at which the tier demotes versions (copies them to the slow root):
        ``when_idle``, ``from_threshold`` or ``from_start``. ``None`` if ``dwpp`` exceeds
        ``dwpp_max``.
    :param start: a threshold for ``dwsf``. Above it, the tier demotes versions even while
        applications write.
    :param full: a threshold for ``dwsf``. Above it, the tier demotes at its maximum rate.
    :param is_write_limited: true if the endpoint limits the writes of applications to
        ``write_rate``.
    :param limit_error: reason for which the endpoint cannot apply the configured limit of writes.
    :param trim_error: reason for which the endpoint cannot apply the configured TRIM.
    :param devices: the fast roots.
    :param missing: bytes that should be free but are not, because no further fast copies may be
        deleted.
    :param restarts: number of requests of applications to restore a version.
    :param hits: number of these requests for which the fast copy of the version still existed.
    :param error: error of the last scan, if this scan failed.
    :param versions: the versions that the caller may see. :meth:`Client.tiers` returns none.
    """

    name: str
    fast: tuple[str, ...] = ()
    slow: str = ""
    capacity: int = 0
    watermark: int = 0
    rounds: int = 0
    used: int = 0
    incoming: int = 0
    period_seconds: int = 0
    waiting: int = 0
    dwsf: int = 0
    dwpp: int = 0
    dwpp_max: int | None = None
    pattern: str | None = None
    start: int = 0
    full: int = 0
    is_writing: bool = False
    demotion_rate: int = 0
    write_rate: int = 0
    is_write_limited: bool = False
    limit_error: str | None = None
    trim_error: str | None = None
    devices: tuple[TierDevice, ...] = ()
    missing: int = 0
    restarts: int = 0
    hits: int = 0
    error: str | None = None
    versions: tuple[TierVersion, ...] = ()


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of an endpoint."""

    tiers: tuple[Tier, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The permission to write one version of an application to a tier, or the wait for permission.

    :param state: ``waiting``, ``granted``, ``ended`` or ``expired``.
    :param placement: ``fast`` or ``slow``: the root of ``path``.
    :param path: API path at which the application creates the version, as a file or a folder.
    :param reason: reason for ``state`` and ``placement``.
    :param rate_max: highest rate in bytes per second at which the tier does not fill up.
    :param starts_at: expected start of a waiting job. ``None`` while it is unknown.
    :param expires_at: end of the lease. Each call about the job by its owner renews the lease.
    """

    id: str
    tier: str
    application: str
    version: int
    state: str
    placement: str
    path: str
    bytes: int = 0
    reason: str | None = None
    rate_max: int | None = None
    starts_at: datetime | None = None
    submitted_at: datetime | None = None
    granted_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
