"""Transfers by the Globus Transfer service, with the requests and answers of ``dray.client``.

``copy`` submits a transfer and waits for its end. :class:`GlobusExecutor` has a method for each
step. The package needs the libraries of the extra ``globus``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dray.client import Request
from dray_globus.executor import GlobusExecutor
from dray_globus.jobs import Options
from dray_globus.report import GlobusEvent, GlobusTask
from dray_globus.settings import Settings
from dray_globus.sites import SiteMap
from dray_globus.store import FileStore
from dray_globus.urls import GlobusPlace, is_globus, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dray.client import Transfer

__all__ = [
    "FileStore",
    "GlobusEvent",
    "GlobusExecutor",
    "GlobusPlace",
    "GlobusTask",
    "Options",
    "Settings",
    "SiteMap",
    "copy",
    "is_globus",
    "parse",
]


def copy(
    sources: str | Sequence[str],
    destination: str,
    *,
    options: Options | None = None,
    settings: Settings | None = None,
    timeout_seconds: float | None = None,
    **fields: Any,  # noqa: ANN401 - fields of a request
) -> Transfer:
    """Copy files between collections, and wait for the end.

    :param sources: ``globus://COLLECTION/PATH``, or ``dray://`` URLs of the site map.
    :param destination: target of the copy, in the same form.
    :param options: options of the Transfer service.
    :param settings: by default read from the environment.
    :param timeout_seconds: maximum time to wait. The task continues after this time.
    :param fields: further fields of :class:`dray.client.Request`.
    :raises DrayError: if the transfer is refused or fails, or was cancelled.
    """
    executor = GlobusExecutor(settings)
    found = executor.submit(Request(sources, destination, **fields), options)
    ended = executor.wait(found.id, timeout_seconds)
    ended.raise_for_failures()
    return ended
