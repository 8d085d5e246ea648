"""Executors: services other than dray that move files, for example Globus.

A package offers an executor by an entry point in the group ``dray.executors``. The name of the
entry point is the scheme of the URLs. The Airflow provider and other programs find executors with
this module, so that no plug-in imports another plug-in.
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

from dray.client._errors import usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dray.client import FileOutcome, Request, Transfer

__all__ = ["GROUP", "Executor", "Store", "open_executor", "scheme_of"]

GROUP = "dray.executors"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: Schemes of endpoints. An executor cannot replace them.
_OWN = frozenset({"dray", "http", "https", "file", "root"})


class Store(Protocol):
    """A durable map from texts to dictionaries, for the records of submissions."""

    def get(self, key: str) -> Any:  # noqa: ANN401 - checked by the reader
        """Return the value of a key. ``None`` if there is no value."""

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Store a value durably."""

    def delete(self, key: str) -> None:
        """Remove a value, if there is one."""


class Executor(Protocol):
    """A service that moves files, with the requests and answers of ``dray.client``."""

    def submit(self, request: Request, options: Mapping[str, Any] | None = None) -> Transfer:
        """Submit a transfer, or attach to the transfer of an earlier submission with the same id.

        :param options: options of the service that have no field in :class:`Request`.
        """

    def transfer(self, id: str) -> Transfer:
        """Return the state of a transfer. If its deadline has passed, cancel it."""

    def query(self, ids: Sequence[str]) -> dict[str, Transfer | None]:
        """Return the states of several transfers. ``None`` for an unknown one."""

    def cancel(self, id: str) -> Transfer:
        """Cancel a transfer. If it has ended already, return its state."""

    def wait(self, id: str, timeout_seconds: float | None = None) -> Transfer:
        """Wait for the end of a transfer.

        :raises DrayTemporaryError: ``timed_out`` after ``timeout_seconds``.
        """

    def files(self, id: str, state: str | None = None) -> Iterator[FileOutcome]:
        """Yield the outcomes of files."""

    def forget(self, id: str) -> None:
        """Remove the record of an ended transfer. A later submission of the id starts anew."""

    def task_id(self, id: str) -> str:
        """Return the service's own id, which the other methods accept in place of ``id``."""

    def page(self, id: str) -> str:
        """Return the address of a page about the transfer, for a browser."""


def scheme_of(url: str) -> str | None:
    """Return the scheme of a URL that only an executor can move. ``None`` for other texts."""
    match = _SCHEME.match(url)
    scheme = "" if match is None else match[1].lower()
    return scheme if scheme and scheme not in _OWN else None


def open_executor(
    scheme: str, settings: Mapping[str, str] | None = None, store: Store | None = None
) -> Executor:
    """Open the executor of a scheme.

    :param settings: settings by name, instead of those of the environment.
    :param store: durable store of the records, instead of the executor's own.
    :raises DrayUsageError: if no installed package offers the executor, or if it cannot be loaded.
    """
    operation = f"move {scheme}:// URLs"
    found = list(entry_points(group=GROUP, name=scheme))
    if not found:
        raise usage(
            f"no installed package has an executor for {scheme}://",
            "check the scheme, and install dray again on this host",
            operation,
        )
    try:
        opener = found[0].load()
    except ImportError as error:
        raise usage(
            f"its executor cannot be loaded: {error}",
            f"install dray with the extra {scheme}",
            operation,
        ) from error
    return cast("Executor", opener(settings, store))
