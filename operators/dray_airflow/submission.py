"""Beginning a task's transfer so that it is begun once, however often the task is.

The id of the transfer is the task's (:mod:`dray_airflow.identity`), and the endpoint attaches a
second submission to the first. What this adds: a later try may want another deadline or priority,
which must not make it another request; a transfer that has ended is begun anew, and then goes on
from what is safe at the destination, which is known there and not here.

Each try leaves its mark on the transfer (a label). Who is told to stop cancels only what bears
its own mark, so that a process that was given up for dead does not end its successor's work.
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
"""The try that submitted it: a part of the request, which a later try repeats as it stands."""
TRY_LABEL = "airflow.try"
"""The try that attached to it last, if any did."""
ENDING_SECONDS_MAX = 120.0
"""How long a transfer that is being cancelled is waited for; its session ends within moments."""
PAUSE_SECONDS = 1.0
ROUNDS_MAX = 3
"""Submissions that may meet a change by somebody else in between."""

#: what a request says about when and how urgently, not about what is moved and how
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
#: of them, what can be changed while the transfer lives
_CHANGEABLE = ("class_", "deadline", "priority", "weight", "rate_min", "rate_max")
#: of them, what an endpoint promises, or does not
_PROMISED = ("deadline", "rate_min")
_URL = re.compile(r"dray://([^/?#\s@]+)(/.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class End:
    """A file or folder at the endpoint of a connection.

    :param conn_id: the connection.
    :param path: ``/ROOT/PATH``, or the whole ``dray://HOST[:PORT]/ROOT/PATH``.
    """

    conn_id: str
    path: str

    def split(self, settings: Settings) -> tuple[str, str]:
        """Give host and port, and the path behind them.

        :raises DrayTaskFailure: if it is no place, or at another endpoint than its connection.
        """
        if self.path.startswith("/") and len(self.path) > 1:
            return settings.authority, self.path
        found = _URL.fullmatch(self.path)
        if found is None:
            raise bad_input(
                f"use {self.path!r}",
                "that names no file or folder of an endpoint",
                "write /ROOT/PATH or dray://HOST/ROOT/PATH",
            )
        authority, path = found.groups()
        if not re.search(r":\d+$", authority):
            authority = f"{authority}:4735"
        if authority.lower() != settings.authority.lower():
            raise bad_input(
                f"use {self.path!r}",
                f"connection {self.conn_id!r} is for {settings.authority}",
                "name the connection of that endpoint, or write /ROOT/PATH alone",
            )
        return authority, path


Ends: TypeAlias = Literal["source", "destination"]
Submit: TypeAlias = "Callable[[Client, Request], Transfer]"


@dataclass(frozen=True, slots=True)
class Errand:
    """What a task wants moved.

    :param sources: what is copied, all of it; at one endpoint.
    :param destination: where to.
    :param request: all else, with an id, without sources, replicas and destination.
    :param replicas: equal copies of the one source.
    :param active: the end whose endpoint is asked and drives.
    :param mark: tells the tries of the task apart.
    :param is_id_own: the id is this task's alone: what else lives under it is an older wish of the
        same task, and gives way.
    :param is_begun_kept: once begun it goes on without a promise where there cannot be one, as the
        endpoint's own retries do.
    :param submit: instead of the client's own, where the transfer was reserved before.
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
        """The connection of the endpoint that is asked."""
        return (self.destination if self.active == "destination" else self.sources[0]).conn_id

    @property
    def id(self) -> str:
        """The transfer's id."""
        return self.request.id or ""

    @property
    def admission(self) -> str | None:
        """What becomes of a deadline that cannot be promised."""
        return self.request.admission

    def body(self) -> dict[str, Any]:
        """Give what is moved and how, without when and how urgently."""
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
        """Give the same with another request."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, **words))

    def late(self) -> Errand:
        """Give what is asked for when it has begun already: late rather than not at all."""
        if not self.is_begun_kept or self.request.admission is not None:
            return self
        return self.with_request(admission="best_effort")

    def is_used_up(self, clients: Clients) -> bool:
        """Whether there is nothing left to make it from; a source is not ours to free."""
        del clients
        return False

    def as_found(self, found: Transfer) -> Errand:
        """Give it as it was submitted, as far as a try may differ."""
        return self.with_request(admission=found.request.get("admission"))

    def send(self, clients: Clients, labels: Mapping[str, str]) -> Transfer:
        """Mint what tickets it takes, and submit."""
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
        whole = dataclasses.replace(self.request, **words)
        return client.submit(whole) if self.submit is None else self.submit(client, whole)

    def _places(
        self, clients: Clients, ends: Sequence[End], *, is_written: bool = False
    ) -> list[Place]:
        """Give the places of ends at one endpoint, with one ticket beside the first."""
        from dray.client import Place

        there = clients.settings(ends[0].conn_id)
        split = [end.split(there) for end in ends]
        active = clients.settings(self.conn_id)
        if split[0][0] == active.authority:
            return [Place(path) for _, path in split]
        key = clients.of(self.conn_id).endpoint().key
        with translated(there.about(f"transfer {self.id}"), there):
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
        """Add the size of the one file there, so that replicas are compared before bytes move."""
        from dray.errors import DrayError

        there = clients.settings(end.conn_id)
        with translated(there.about(f"transfer {self.id}"), there):
            try:
                entry = clients.of(end.conn_id).stat(end.split(there)[1])
            except DrayError as error:
                # A missing replica is reported when the transfer turns to it.
                if error.kind != "not_found":
                    raise
                return place
        words: dict[str, Any] = {"size": entry.size} if entry.type == "file" else {}
        return dataclasses.replace(place, **words)


class Wish(Protocol):
    """What can be begun: an :class:`Errand`, or a copy to be staged."""

    @property
    def request(self) -> Request | StagingRequest:
        """All of it that an endpoint is told."""

    @property
    def mark(self) -> str:
        """Tells the tries of the task apart."""

    @property
    def is_id_own(self) -> bool:
        """See :class:`Errand`."""

    @property
    def is_begun_kept(self) -> bool:
        """See :class:`Errand`."""

    @property
    def conn_id(self) -> str:
        """The connection of the endpoint that is asked."""

    @property
    def id(self) -> str:
        """The transfer's id."""

    @property
    def admission(self) -> str | None:
        """What becomes of a deadline that cannot be promised: ``required``, ``best_effort``."""

    def body(self) -> dict[str, Any]:
        """Give what is moved and how, without when and how urgently."""

    def late(self) -> Wish:
        """Give what is asked for when it has begun already."""

    def is_used_up(self, clients: Clients) -> bool:
        """Whether what is done stands, and what it was made from was freed behind it."""

    def as_found(self, found: Transfer) -> Wish:
        """Give it as it was submitted, as far as a try may differ."""

    def send(self, clients: Clients, labels: Mapping[str, str]) -> Transfer:
        """Submit it."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A transfer that was begun, or found.

    :param transfer: as it stood.
    :param story: what was done, for the log.
    """

    transfer: Transfer
    story: str


def fingerprint(wish: Wish) -> str:
    """Give a digest of what is moved and how."""
    text = json.dumps(wish.body(), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def said(request: Request | StagingRequest) -> dict[str, Any]:
    """Give what a request says about what is moved and how."""
    words = dataclasses.asdict(request)
    return {name: each for name, each in words.items() if name not in _WHEN and each is not None}


class Clients:
    """Clients by connection, opened when first asked for; as a context, closes them."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._open: dict[str, tuple[Client, Settings]] = {}

    def of(self, conn_id: str) -> Client:
        """Give the client of a connection."""
        return self._both(conn_id)[0]

    def settings(self, conn_id: str) -> Settings:
        """Give what a connection says."""
        return self._both(conn_id)[1]

    def _both(self, conn_id: str) -> tuple[Client, Settings]:
        from dray_airflow.hooks.dray import DrayHook

        if conn_id not in self._open:
            hook = DrayHook(conn_id)
            self._open[conn_id] = hook.get_conn(), hook.settings
        return self._open[conn_id]

    def __enter__(self) -> Clients:
        """Give the clients themselves."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close those that were opened."""
        for client, _ in self._open.values():
            client.close()
        self._open.clear()


def begin(wish: Wish, clients: Clients, unreported: int | None = None) -> Begun:
    """Submit a transfer, or attach to it, or go on with it after its end; and mark it as ours.

    :param unreported: the attempt that an earlier try of the task has begun and whose end none has
        reported: if it is done it is taken as it is, for to bring it again may be to send it twice,
        and its source may be gone by now.
    :raises DrayTaskFailure: for what will not go away by itself.
    :raises DrayTaskRetry: for the rest.
    """
    from dray.errors import DrayError

    settings = clients.settings(wish.conn_id)
    with translated(settings.about(f"transfer {wish.id}"), settings):
        client = clients.of(wish.conn_id)
        is_taken = False
        for left in reversed(range(ROUNDS_MAX)):
            found = client.query([wish.id])[wish.id]
            try:
                begun = _begin(wish, clients, found, unreported)
            except DrayError as error:
                # Between the look and the submission another try may have begun or ended it. What
                # is taken and cannot be seen at a second look either is another owner's.
                is_anothers = found is None and is_taken
                if error.kind != "already_exists" or not left or is_anothers:
                    raise
                is_taken = found is None
                time.sleep(PAUSE_SECONDS)
                continue
            if begun is not None:
                return begun
    raise DrayTaskRetry(
        f"transfer {wish.id} changes all the time; look who else uses its id", "already_exists"
    )


def _begin(
    wish: Wish, clients: Clients, found: Transfer | None, unreported: int | None
) -> Begun | None:
    """Do what fits what was found; ``None``: look again."""
    if found is None:
        _check_deadline(wish)
        return Begun(wish.send(clients, _own_labels(wish, wish.mark)), "submitted")
    is_same = _labels(found).get(BODY_LABEL) == fingerprint(wish)
    if found.state == "done" and is_same:
        if found.attempt == unreported:
            return Begun(found, "was done before this try, and no try had said so")
        if wish.is_used_up(clients):
            return Begun(found, "was done, and what it was made from is free already")
    if found.is_terminal:
        transfer = wish.late().send(clients, _own_labels(wish, wish.mark))
        return Begun(transfer, f"begun again after it was {found.state}")
    if is_same:
        return _attach(wish, clients, found)
    if not wish.is_id_own:
        raise bad_input(
            f"begin transfer {wish.id}",
            "another transfer lives under this id",
            "choose another transfer_id, or wait for that one",
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
            f"its deadline {deadline.isoformat(timespec='seconds')} is past",
            'give a later one, or move it late: admission="best_effort"',
        )


def _attach(wish: Wish, clients: Clients, found: Transfer) -> Begun | None:
    from dray.errors import DrayError

    client = clients.of(wish.conn_id)
    first = str(_labels(found).get(FIRST_LABEL, ""))
    try:
        # The same request again brings fresh tickets.
        transfer = wish.as_found(found).send(clients, _own_labels(wish, first))
    except DrayError as error:
        if error.kind != "already_exists":
            raise
        # It was to be done at another time when it was submitted, or it is being cancelled: then a
        # retry is refused as well, while of one that lives it changes nothing.
        try:
            transfer = client.retry(found.id)
        except DrayError as leaving:
            if leaving.kind != "already_exists":
                raise
            client.wait(found.id, timeout_seconds=ENDING_SECONDS_MAX)
            return None
    story = "begun again" if transfer.attempt != found.attempt else "attached"
    taken = _take_over(wish, client, transfer, first)
    if taken.state == "cancelled":
        # Its last try was told to stop right before our mark: there is nobody's but ours now.
        return None
    return Begun(taken, story)


def _take_over(wish: Wish, client: Client, transfer: Transfer, first: str) -> Transfer:
    """Leave our mark on a transfer, and ask of it what this try wants else."""
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
            # It has ended meanwhile, or its session is about to: nothing is left to change.
            return client.wait(transfer.id, timeout_seconds=ENDING_SECONDS_MAX)
        if error.kind != "not_admitted" or not wish.is_begun_kept:
            raise
    # It keeps the promise it has, if any; what moves is not stopped for the lack of a better one.
    # The rest of what this try wants is asked for all the same.
    better = {name: str(wanted.pop(name)) for name in _PROMISED if name in wanted}
    log.warning("transfer %s keeps the promise it has; there is none for %s", transfer.id, better)
    try:
        return client.change(transfer.id, labels=labels, **wanted)
    except DrayError as error:
        if error.kind != "not_admitted":
            raise
    log.warning("transfer %s stays as it is: even %s would break it", transfer.id, sorted(wanted))
    return client.change(transfer.id, labels=labels)


def _own_labels(wish: Wish, first: str) -> dict[str, str]:
    return {**(wish.request.labels or {}), BODY_LABEL: fingerprint(wish), FIRST_LABEL: first}


def _labels(transfer: Transfer) -> dict[str, Any]:
    return dict(transfer.request.get("labels") or {})


def _written(value: object) -> object:
    """Give a field of a request as an endpoint shows it."""
    if not isinstance(value, datetime):
        return value
    text = value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


ENDED = "it has ended already"


def cancel_own(client: Client, id: str, mark: str) -> str:
    """Cancel a transfer if this try is the last that has laid claim to it; what is safe stays.

    :param mark: this try's.
    :returns: what was done, for the log.
    """
    from dray.errors import DrayError

    while True:
        found = client.query([id])[id]
        if found is None:
            return ENDED
        if verdict := _verdict(found, mark):
            return verdict
        try:
            # As it was seen: a later try may lay claim to it in this very moment.
            return _said(client.cancel(id, version=found.version))
        except DrayError as error:
            if error.kind != "already_exists":
                raise


async def cancel_own_async(client: AsyncClient, id: str, mark: str) -> str:
    """Await :func:`cancel_own`."""
    from dray.errors import DrayError

    while True:
        found = (await client.query([id]))[id]
        if found is None:
            return ENDED
        if verdict := _verdict(found, mark):
            return verdict
        try:
            return _said(await client.cancel(id, version=found.version))
        except DrayError as error:
            if error.kind != "already_exists":
                raise


def _verdict(found: Transfer, mark: str) -> str | None:
    """Say why it is not to be cancelled, if it is not."""
    if found.is_terminal:
        return ENDED
    labels = _labels(found)
    if labels.get(TRY_LABEL, labels.get(FIRST_LABEL)) != mark:
        return "a later try goes on with it"
    return None


def _said(cancelled: Transfer) -> str:
    return f"cancelled with {cancelled.bytes.durable} bytes safe, which are kept"
