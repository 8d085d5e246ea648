"""Ask endpoints about future transfers: the rates that they can promise, and the sizes of sources.

The module is used for transfers of undeclared size in the first runs of a DAG, which have no
history yet. If an endpoint does not answer soon, the rate or size stays unknown.
"""

from __future__ import annotations

import dataclasses
import logging
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from dray_airflow import values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import Context

    from dray.client import Client
    from dray_airflow.hooks.dray import Settings

__all__ = ["Known", "known_of", "rate_at", "size_at"]

log = logging.getLogger(__name__)

SECONDS = 5.0
"""Time limit of one call in seconds. A task that is about to move data waits for the answer."""
ENTRIES_MAX = 2000
"""Maximum number of entries in a folder whose size is computed: two calls with 1000 entries each.
"""
TOO_MUCH_BYTES = (10**12, 10**13)
"""Sizes in bytes of the transfers that are used to find the rate of an endpoint.

The code asks an endpoint if the endpoint could promise a transfer of this size within one hour. An
endpoint that cannot promise this refuses, and reports the rate that it could promise. But if the
requested rate is several hundred times higher than this rate, the endpoint does not report the
rate. So ask first with the smaller size, and use the larger size only if the endpoint could promise
the smaller size.
"""


class Known(NamedTuple):
    """Size and rate of a transfer, as reported by endpoints.

    :param bytes: current size of the source.
    :param rate: rate in bytes per second that the endpoint could promise.
    """

    bytes: int | None = None
    rate: float | None = None


def known_of(operators: Iterable[Any], context: Context) -> dict[str, Known]:
    """Ask endpoints about transfers that have not started. Never raises.

    :param operators: operators with one transfer each. If a path depends on another task, the
        values of the operator stay unknown.
    :param context: context of the asking task, for templates.
    """
    found: dict[str, Known] = {}
    clients = _Clients()
    try:
        for operator in operators:
            try:
                found[operator.task_id] = _ask(operator, context, clients)
            except Exception as error:
                # After any error of a template, a connection or an endpoint, the value stays
                # unknown.
                log.info("size or rate of task %s is unknown: %s", operator.task_id, error)
                if getattr(error, "status", "permanent") != "permanent":
                    # An endpoint is unreachable. The task does not wait for further calls.
                    break
    finally:
        clients.close()
    return found


class _Clients:
    """Clients by connection, with short timeouts. A connection without a client is not retried."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Client, Settings] | Exception] = {}
        self.rates: dict[str, float | None] = {}

    def of(self, conn_id: str) -> tuple[Client, Settings]:
        from dray.client import Client
        from dray_airflow.hooks.dray import DrayHook

        if conn_id not in self._open:
            try:
                settings = dataclasses.replace(DrayHook(conn_id).settings, seconds=SECONDS)
                self._open[conn_id] = Client(**settings.arguments()), settings
            except Exception as error:
                self._open[conn_id] = error
        found = self._open[conn_id]
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        for each in self._open.values():
            if not isinstance(each, Exception):
                each[0].close()


def _ask(operator: Any, context: Context, clients: _Clients) -> Known:  # noqa: ANN401 - an operator
    from dray_airflow.submission import End

    def read(name: str) -> Any:  # noqa: ANN401 - as it was given
        return operator.render_template(getattr(operator, name, None), context)

    sources = values.texts("sources", read("sources"))
    if len(sources) != 1:
        return Known()
    source = End(values.texts("source_conn_id", read("source_conn_id"))[0], sources[0])
    destination = End(
        values.text("destination_conn_id", read("destination_conn_id")),
        values.text("destination", read("destination")),
    )
    active = (source if read("active") == "source" else destination).conn_id
    if active not in clients.rates:
        clients.rates[active] = None
        client, settings = clients.of(active)
        places = []
        for end in (source, destination):
            authority, path = end.split(clients.of(end.conn_id)[1])
            is_here = authority == settings.authority
            places.append(path if is_here else f"dray://{authority}{path}")
        clients.rates[active] = rate_at(client, *places)
    is_chosen = any(not values.is_empty(read(name)) for name in ("include", "exclude"))
    size = None
    if not is_chosen:
        client, settings = clients.of(source.conn_id)
        size = size_at(client, source.split(settings)[1])
    return Known(size, clients.rates[active])


def rate_at(client: Client, source: str, destination: str) -> float | None:
    """Return the rate that an endpoint could promise to a transfer. ``None`` if not reported.

    :param client: client of the endpoint.
    :param source: URL, or path at the endpoint.
    :param destination: URL, or path at the endpoint.
    """
    from dray.client import Request

    deadline = datetime.now(timezone.utc) + timedelta(hours=1)
    for size in TOO_MUCH_BYTES:
        like = Request(source, destination, bytes_expected=size, deadline=deadline)
        answer = client.admission([like])
        if answer.decision == "refuse":
            rates = [each.rate_available for each in answer.transfers if each.rate_available]
            return min(rates, default=None)
    return None


def size_at(client: Client, path: str) -> int | None:
    """Return the size of a file or folder. ``None`` if it is missing or has too many entries."""
    from dray.errors import DrayError

    try:
        entry = client.stat(path)
    except DrayError as error:
        if error.kind == "not_found":
            return None
        raise
    if entry.type != "directory":
        return entry.size
    total, seen, folders = 0, 0, [path.rstrip("/")]
    while folders:
        folder = folders.pop()
        for each in client.list(folder):
            seen += 1
            if seen > ENTRIES_MAX:
                return None
            if each.type == "directory":
                folders.append(f"{folder}/{each.name}")
            else:
                total += each.size or 0
    return total
