"""A parsed submission of FTS: the job, its parameters and its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dray_fts.states import job_state
from dray_fts.values import PRIORITY_USUAL

if TYPE_CHECKING:
    from dray_fts.sites import Place

__all__ = ["File", "Job", "Params"]


@dataclass(frozen=True, slots=True)
class Params:
    """The parameters of an FTS job that the service supports.

    :param overwrite: ``no``, ``yes``, or ``hops`` (yes for all hops but the last).
    :param retry: below 0: no retry. 0: as often as the endpoint usually does. Otherwise the number
        of retries.
    :param queue_seconds: time after which a file that has not begun is canceled.
    :param timeout_seconds: time after which a running file fails.
    :param staging_seconds: time after which a file that is not staged fails. ``None``: no staging.
    :param pin_seconds: time for which the endpoint keeps a staged copy. ``None``: the setting of
        the endpoint.
    :param archive_seconds: time after which a copied file that is not archived fails. ``None``: the
        service does not wait until a file is archived.
    """

    priority: int = PRIORITY_USUAL
    verify_checksum: str = "none"
    overwrite: str = "no"
    retry: int = 0
    retry_delay: int = 0
    nostreams: int | None = None
    queue_seconds: float | None = None
    timeout_seconds: float | None = None
    dst_file_report: bool = False
    staging_seconds: int | None = None
    pin_seconds: int | None = None
    archive_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A file of a job: one source and one destination.

    :param index: number of the file. Alternatives of a file have the same number.
    :param begins: false for a later alternative or hop, which waits for the previous one.
    :param stages: true if the file is staged before its copy, or instead of a copy.
    :param archives: true if the file ends when it is archived.
    :param deletes: true if the file is deleted, and not copied. Both URLs are then the same.
    :param staging_metadata: JSON text with the activity and the priority of the staging.
    :param checksum: as submitted.
    :param content: checksum that the copy must have, in the form of the API.
    :param tokens: tokens of the source and of the destination. They are not stored.
    """

    index: int
    begins: bool
    source_url: str
    destination_url: str
    source: Place
    destination: Place
    checksum: str | None
    content: str | None
    size: int | None
    metadata: Any
    activity: str
    scitag: int | None
    strategy: str
    tokens: tuple[str | None, str | None]
    stages: bool
    archives: bool
    staging_metadata: str | None
    deletes: bool = False

    @property
    def state(self) -> str:
        """First state of the file."""
        if self.deletes:
            return "DELETE"
        if not self.begins:
            return "NOT_USED"
        return "STAGING" if self.stages else "SUBMITTED"

    def __repr__(self) -> str:
        """Return the URLs, and never a token."""
        return f"File({self.source_url!r}, {self.destination_url!r})"


@dataclass(frozen=True, slots=True)
class Job:
    """A parsed submission.

    :param seed: the client's text ``sid``, from which the service derives the id of the job.
        ``None``: the id is random.
    """

    job_type: str
    params: Params
    files: tuple[File, ...]
    metadata: Any
    seed: str | None

    @property
    def state(self) -> str:
        """First state of the job."""
        return job_state(self.job_type, [(each.index, each.state) for each in self.files])
