"""Submit a task's transfer exactly once, however often the task is tried.

The id of the transfer is derived from the task (:mod:`dray_airflow.identity`), and the endpoint
attaches a second submission to the first. This module adds two things. A later try may change
deadline or priority without creating another request. A transfer that has ended is started again,
and resumes from durable data.

Each try marks the transfer with a label of its own. A stopped try cancels the transfer only if the
transfer still has the label of this try. So a process that was wrongly assumed dead does not cancel
the transfer of its successor.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from dray_airflow.errors import DrayTaskRetry, bad_input, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from dray.client import AsyncClient, Client, Place, Request, StagingRequest, Transfer
    from dray_airflow.hooks.dray import Settings

__all__ = [
    "Begun",
    "Clients",
    "End",
    "Ends",
    "Errand",
    "Wish",
    "begin",
    "cancel_own",
    "cancel_own_async",
    "fingerprint",
    "said",
]

log = logging.getLogger(__name__)

BODY_LABEL = "airflow.body"
FIRST_LABEL = "airflow.first"
"""Label with the try that submitted the transfer.

This label is a part of the request. Later tries of the task repeat the label unchanged, so that
their requests are equal to the first request.
"""
TRY_LABEL = "airflow.try"
"""Label with the try that last attached to the transfer."""
ENDING_SECONDS_MAX = 120.0
"""Maximum wait in seconds for a transfer that is being cancelled.

Its session usually ends within moments.
"""
PAUSE_SECONDS = 1.0
ROUNDS_MAX = 3
"""Maximum number of submissions if other callers change the transfer at the same time."""

#: Fields of a request about time and urgency, and not about the data.
_WHEN = (
    "id",
    "class_",
    "deadline",
    "not_before",
    "admission",
    "bytes_expected",
    "priority",
    "weight",
    "rate_min",
    "rate_max",
    "activity",
    "labels",
    "retry",
    "bound_seconds",
)
#: Fields that can be changed while the transfer is live.
_CHANGEABLE = ("class_", "deadline", "priority", "weight", "rate_min", "rate_max")
#: Fields that an endpoint promises or refuses.
_PROMISED = ("deadline", "rate_min")
_URL = re.compile(r"dray://([^/?#\s@]+)(/.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class End:
    """A file or folder at the endpoint of a connection.

    :param conn_id: name of the connection.
    :param path: ``/ROOT/PATH``, or the whole ``dray://HOST[:PORT]/ROOT/PATH``.
    """

    conn_id: str
    path: str

    def split(self, settings: Settings) -> tuple[str, str]:
        """Return the host with the port, and the path at this endpoint.

        :raises DrayTaskFailure: if the path is invalid, or if its URL names another endpoint than
            the connection.
        """
        if self.path.startswith("/") and len(self.path) > 1:
            return settings.authority, self.path
        match = _URL.fullmatch(self.path)
        if match is None:
            raise bad_input(
                f"use {self.path!r}",
                "the text is not a path of an endpoint",
                "write /ROOT/PATH or dray://HOST/ROOT/PATH",
            )
        authority, path = match.groups()
        if not re.search(r":\d+$", authority):
            authority = f"{authority}:4735"
        if authority.lower() != settings.authority.lower():
            raise bad_input(
                f"use {self.path!r}",
                f"connection {self.conn_id!r} is for {settings.authority}",
                f"use a connection for {authority}, or write {path} alone",
            )
        return authority, path


Ends: TypeAlias = Literal["source", "destination"]
Submit: TypeAlias = "Callable[[Client, Request], Transfer]"


@dataclass(frozen=True, slots=True)
class Errand:
    """The transfer that a task requests.

    :param sources: files or folders at one endpoint, which are all copied.
    :param destination: target of the copy.
    :param request: the id and all other fields of the transfer, without sources, replicas and
        destination.
    :param replicas: equal copies of a single source.
    :param active: end whose endpoint drives the transfer.
    :param mark: label of this try of the task.
    :param is_id_own: true if only this task uses the id. A live transfer with this id and another
        request then comes from an earlier try, and the task cancels this transfer.
    :param is_begun_kept: true if a transfer that has started continues even if the endpoint can no
        longer promise its deadline. The endpoint also keeps this rule in its own retries.
    :param submit: function that replaces the client's submission if the transfer was reserved.
    """

    sources: tuple[End, ...]
    destination: End
    request: Request
    active: Ends = "destination"
    mark: str = ""
    is_id_own: bool = True
    is_begun_kept: bool = True
    submit: Submit | None = None
    replicas: tuple[End, ...] = ()

    @property
    def conn_id(self) -> str:
        """The connection of the endpoint that drives the transfer."""
        return (self.destination if self.active == "destination" else self.sources[0]).conn_id

    @property
    def id(self) -> str:
        """The transfer's id."""
        return self.request.id or ""

    @property
    def admission(self) -> str | None:
        """Handling of a deadline that cannot be promised."""
        return self.request.admission

    def body(self) -> dict[str, Any]:
        """Return the fields of the request that describe the data, without time and urgency."""
        ends = {
            "sources": [(end.conn_id, end.path) for end in self.sources],
            "destination": (self.destination.conn_id, self.destination.path),
            "active": self.active,
            **(
                {"replicas": [(end.conn_id, end.path) for end in self.replicas]}
                if self.replicas
                else {}
            ),
        }
        return {**said(self.request), **ends}

    def with_request(self, **words: Any) -> Errand:  # noqa: ANN401 - fields of a request
        """Return a copy with another request."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, **words))

    def late(self) -> Errand:
        """Return the request for a started transfer, which then continues even if it is late."""
        if not self.is_begun_kept or self.request.admission is not None:
            return self
        return self.with_request(admission="best_effort")

    def is_used_up(self, clients: Clients) -> bool:
        """Return true if the source no longer exists after the transfer. Never true here."""
        del clients
        return False

    def as_found(self, found: Transfer) -> Errand:
        """Return this request with the ``admission`` of the submitted request ``found``."""
        return self.with_request(admission=found.request.get("admission"))

    def send(self, clients: Clients, labels: Mapping[str, str]) -> Transfer:
        """Request the tickets that the transfer needs, and submit it."""
        client = clients.of(self.conn_id)
        words: dict[str, Any] = {
            "sources": self._places(clients, self.sources),
            "destination": self._places(clients, (self.destination,), is_written=True)[0],
            "labels": labels,
        }
        if self.replicas:
            words["sources"] = [self._sized(clients, self.sources[0], words["sources"][0])]
            words["replicas"] = [
                self._sized(clients, replica, self._places(clients, (replica,))[0])
                for replica in self.replicas
            ]
        request = dataclasses.replace(self.request, **words)
        return client.submit(request) if self.submit is None else self.submit(client, request)

    def _places(
        self, clients: Clients, ends: Sequence[End], *, is_written: bool = False
    ) -> list[Place]:
        """Return the places of ends at one endpoint.

        The first place has the ticket for all of them.
        """
        from dray.client import Place

        settings = clients.settings(ends[0].conn_id)
        split = [end.split(settings) for end in ends]
        active = clients.settings(self.conn_id)
        if split[0][0] == active.authority:
            return [Place(path) for _, path in split]
        key = clients.of(self.conn_id).endpoint().key
        with translated(settings.about(f"transfer {self.id}"), settings):
            ticket = clients.of(ends[0].conn_id).mint_ticket(
                self.id,
                "write" if is_written else "read",
                [path for _, path in split],
                key,
                overwrite=self.request.overwrite if is_written else None,
            )
        urls = [f"dray://{authority}{path}" for authority, path in split]
        first = Place(urls[0], ticket.ticket, ticket.key, ticket.address)
        return [first, *(Place(url) for url in urls[1:])]

    def _sized(self, clients: Clients, end: End, place: Place) -> Place:
        """Add the size of a single file, so that replicas are compared before data moves."""
        from dray.errors import DrayError

        settings = clients.settings(end.conn_id)
        with translated(settings.about(f"transfer {self.id}"), settings):
            try:
                entry = clients.of(end.conn_id).stat(end.split(settings)[1])
            except DrayError as error:
                # A missing replica is reported when the transfer needs it.
                if error.kind != "not_found":
                    raise
                return place
        words: dict[str, Any] = {"size": entry.size} if entry.type == "file" else {}
        return dataclasses.replace(place, **words)


class Wish(Protocol):
    """A request that can be submitted: an :class:`Errand`, or a copy to stage."""

    @property
    def request(self) -> Request | StagingRequest:
        """The complete request for the endpoint."""

    @property
    def mark(self) -> str:
        """Label of this try of the task."""

    @property
    def is_id_own(self) -> bool:
        """True if only this task uses the id. See :class:`Errand`."""

    @property
    def is_begun_kept(self) -> bool:
        """True if a started transfer continues without a promise. See :class:`Errand`."""

    @property
    def conn_id(self) -> str:
        """The connection of the endpoint that drives the transfer."""

    @property
    def id(self) -> str:
        """The transfer's id."""

    @property
    def admission(self) -> str | None:
        """Handling of a deadline that cannot be promised: ``required`` or ``best_effort``."""

    def body(self) -> dict[str, Any]:
        """Return the fields of the request that describe the data, without time and urgency."""

    def late(self) -> Wish:
        """Return the request for a transfer that has started."""

    def is_used_up(self, clients: Clients) -> bool:
        """Return true if the result exists and its source was removed afterwards."""

    def as_found(self, found: Transfer) -> Wish:
        """Return this request with the ``admission`` of the submitted request ``found``."""

    def send(self, clients: Clients, labels: Mapping[str, str]) -> Transfer:
        """Submit the request."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A transfer that was submitted or found.

    :param transfer: last known state of the transfer.
    :param story: text for the log: how the transfer was submitted or found.
    """

    transfer: Transfer
    story: str


def fingerprint(wish: Wish) -> str:
    """Return a digest of the fields that describe the data."""
    text = json.dumps(wish.body(), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def said(request: Request | StagingRequest) -> dict[str, Any]:
    """Return the fields of a request that describe the data."""
    words = dataclasses.asdict(request)
    return {name: each for name, each in words.items() if name not in _WHEN and each is not None}


class Clients:
    """Clients by connection, opened on first use. As a context manager, closes all clients."""

    def __init__(self) -> None:
        """Create the table without clients."""
        self._open: dict[str, tuple[Client, Settings]] = {}

    def of(self, conn_id: str) -> Client:
        """Return the client of a connection."""
        return self._client_and_settings(conn_id)[0]

    def settings(self, conn_id: str) -> Settings:
        """Return the settings of a connection."""
        return self._client_and_settings(conn_id)[1]

    def _client_and_settings(self, conn_id: str) -> tuple[Client, Settings]:
        from dray_airflow.hooks.dray import DrayHook

        if conn_id not in self._open:
            hook = DrayHook(conn_id)
            self._open[conn_id] = hook.get_conn(), hook.settings
        return self._open[conn_id]

    def __enter__(self) -> Clients:
        """Return the clients."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the open clients."""
        for client, _ in self._open.values():
            client.close()
        self._open.clear()


def begin(wish: Wish, clients: Clients, unreported: int | None = None) -> Begun:
    """Submit a transfer, attach to a live one, or resume an ended one. Mark it for this try.

    :param unreported: number of an attempt that an earlier try of the task started, and whose
        result no try has reported. If this attempt has succeeded, its result is used, because a new
        attempt could send the data twice, and the source may no longer exist.
    :raises DrayTaskFailure: for a permanent error.
    :raises DrayTaskRetry: for other errors.
    """
    from dray.errors import DrayError

    settings = clients.settings(wish.conn_id)
    with translated(settings.about(f"transfer {wish.id}"), settings):
        client = clients.of(wish.conn_id)
        is_taken = False
        for left in reversed(range(ROUNDS_MAX)):
            transfer = client.query([wish.id])[wish.id]
            try:
                begun = _begin(wish, clients, transfer, unreported)
            except DrayError as error:
                # Another try may have submitted or ended the transfer between the query and the
                # submission. If the id is in use, but a second query finds no transfer, the id
                # belongs to another owner.
                is_anothers = transfer is None and is_taken
                if error.kind != "already_exists" or not left or is_anothers:
                    raise
                is_taken = transfer is None
                time.sleep(PAUSE_SECONDS)
                continue
            if begun is not None:
                return begun
    raise DrayTaskRetry(
        f"other callers keep changing transfer {wish.id}; check which callers use this id",
        "already_exists",
    )


def _begin(
    wish: Wish, clients: Clients, found: Transfer | None, unreported: int | None
) -> Begun | None:
    """Act on the state that was found. Return ``None`` if the caller must query again."""
    if found is None:
        _check_deadline(wish)
        return Begun(wish.send(clients, _own_labels(wish, wish.mark)), "submitted")
    is_same = _labels(found).get(BODY_LABEL) == fingerprint(wish)
    if found.state == "done" and is_same:
        if found.attempt == unreported:
            return Begun(found, "was done before this try, and no try had recorded this")
        if wish.is_used_up(clients):
            return Begun(found, "was done, and its staged source was freed already")
    if found.is_terminal:
        transfer = wish.late().send(clients, _own_labels(wish, wish.mark))
        return Begun(transfer, f"started again after it was {found.state}")
    if is_same:
        return _attach(wish, clients, found)
    if not wish.is_id_own:
        raise bad_input(
            f"begin transfer {wish.id}",
            "another transfer with this id has not ended",
            "choose another transfer_id, or wait for that transfer",
        )
    client = clients.of(wish.conn_id)
    client.cancel(found.id)
    client.wait(found.id, timeout_seconds=ENDING_SECONDS_MAX)
    return None


def _check_deadline(wish: Wish) -> None:
    deadline = wish.request.deadline
    if deadline is None or wish.admission == "best_effort":
        return
    if deadline <= datetime.now(timezone.utc):
        raise bad_input(
            f"begin transfer {wish.id}",
            f"the deadline {deadline.isoformat(timespec='seconds')} has passed",
            'give a later deadline, or transfer without a promise: admission="best_effort"',
        )


def _attach(wish: Wish, clients: Clients, found: Transfer) -> Begun | None:
    from dray.errors import DrayError

    client = clients.of(wish.conn_id)
    first = str(_labels(found).get(FIRST_LABEL, ""))
    try:
        # The same request again gives the transfer new tickets.
        transfer = wish.as_found(found).send(clients, _own_labels(wish, first))
    except DrayError as error:
        if error.kind != "already_exists":
            raise
        # Either the transfer was submitted with another deadline or priority, or it is being
        # cancelled. In the second case the endpoint refuses a retry too. For a live transfer, a
        # retry changes nothing.
        try:
            transfer = client.retry(found.id)
        except DrayError as leaving:
            if leaving.kind != "already_exists":
                raise
            client.wait(found.id, timeout_seconds=ENDING_SECONDS_MAX)
            return None
    story = "started again" if transfer.attempt != found.attempt else "attached"
    taken = _take_over(wish, client, transfer, first)
    if taken.state == "cancelled":
        # The previous try cancelled the transfer just before the transfer got the mark of this try.
        # With this mark, no earlier try can cancel the transfer.
        return None
    return Begun(taken, story)


def _take_over(wish: Wish, client: Client, transfer: Transfer, first: str) -> Transfer:
    """Mark a transfer, and apply the other changes of this try."""
    from dray.errors import DrayError

    wanted: dict[str, Any] = {
        name: value
        for name in _CHANGEABLE
        if (value := getattr(wish.request, name, None)) is not None
        and transfer.request.get(name.rstrip("_")) != _written(value)
    }
    labels = {**_own_labels(wish, first), TRY_LABEL: wish.mark}
    try:
        return client.change(transfer.id, labels=labels, **wanted)
    except DrayError as error:
        if error.kind == "already_exists":
            # The transfer has ended, or its session is about to end, so there is nothing to change.
            return client.wait(transfer.id, timeout_seconds=ENDING_SECONDS_MAX)
        if error.kind != "not_admitted" or not wish.is_begun_kept:
            raise
    # The endpoint cannot promise the changed deadline or rate. Let the transfer continue, with its
    # existing promise if it has one. Apply only the other changes of this try.
    better = {name: str(wanted.pop(name)) for name in _PROMISED if name in wanted}
    log.warning("transfer %s keeps its promise; %s cannot be promised", transfer.id, better)
    try:
        return client.change(transfer.id, labels=labels, **wanted)
    except DrayError as error:
        if error.kind != "not_admitted":
            raise
    log.warning(
        "transfer %s is unchanged: changing %s would break its promise", transfer.id, sorted(wanted)
    )
    return client.change(transfer.id, labels=labels)


def _own_labels(wish: Wish, first: str) -> dict[str, str]:
    return {**(wish.request.labels or {}), BODY_LABEL: fingerprint(wish), FIRST_LABEL: first}


def _labels(transfer: Transfer) -> dict[str, Any]:
    return dict(transfer.request.get("labels") or {})


def _written(value: object) -> object:
    """Return a field of a request in the form that an endpoint returns."""
    if not isinstance(value, datetime):
        return value
    text = value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


ENDED = "the transfer has ended already"


def cancel_own(client: Client, id: str, mark: str) -> str:
    """Cancel a transfer if its last mark is that of this try. Durable data is kept.

    :param mark: mark of this try.
    :returns: text for the log that describes the action.
    """
    from dray.errors import DrayError

    while True:
        transfer = client.query([id])[id]
        if transfer is None:
            return ENDED
        if verdict := _verdict(transfer, mark):
            return verdict
        try:
            # With the version, because a later try may mark the transfer at this moment.
            return _cancelled_text(client.cancel(id, version=transfer.version))
        except DrayError as error:
            if error.kind != "already_exists":
                raise


async def cancel_own_async(client: AsyncClient, id: str, mark: str) -> str:
    """Await :func:`cancel_own`."""
    from dray.errors import DrayError

    while True:
        transfer = (await client.query([id]))[id]
        if transfer is None:
            return ENDED
        if verdict := _verdict(transfer, mark):
            return verdict
        try:
            return _cancelled_text(await client.cancel(id, version=transfer.version))
        except DrayError as error:
            if error.kind != "already_exists":
                raise


def _verdict(found: Transfer, mark: str) -> str | None:
    """Return the reason not to cancel the transfer. ``None`` if it may be cancelled."""
    if found.is_terminal:
        return ENDED
    labels = _labels(found)
    if labels.get(TRY_LABEL, labels.get(FIRST_LABEL)) != mark:
        return "not cancelled, because a later try has attached to this transfer"
    return None


def _cancelled_text(cancelled: Transfer) -> str:
    return f"cancelled; {cancelled.bytes.durable} bytes are safe and kept"
