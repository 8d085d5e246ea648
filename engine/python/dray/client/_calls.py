"""All calls of the API. Each call has a request, a form of its answer, and a rule for repeating it.

Pure: no sockets and no clock. Both clients and the tests use these functions.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Generic, Literal, TypeVar
from urllib.parse import urlencode

from dray.client import _answers as answers
from dray.client._endpoint import EndpointInfo, Health, Scheduling
from dray.client._errors import error_of, usage
from dray.client._live import LiveFiles
from dray.client._load import EndpointLoad
from dray.client._log import TransferLog
from dray.client._reader import ShapeError, read
from dray.client._requests import Keep, Request, StagingRequest, WriteRequest, write, write_time
from dray.client._targets import StorageTargets
from dray.client._tiers import Tier, Tiers, WriteJob
from dray.client._urls import segment

if TYPE_CHECKING:
    from dray.client._steps import Json
    from dray.errors import DrayError

__all__ = ["Call", "Page", "Safety"]

T = TypeVar("T")
IDS_MAX = 1000


class Safety(enum.Enum):
    """The rule for repeating a request when the outcome of the first try is unknown."""

    #: A repetition changes nothing.
    REPEATABLE = "repeatable"
    #: Repeat only if the endpoint cannot have started the call, because the endpoint was
    #: unreachable or refused the call as busy.
    ONCE = "once"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call of the API.

    :param operation: purpose of the call as an infinitive, for messages.
    :param read: function that converts the answer's JSON to the result.
    :param hold_seconds: maximum time for which the endpoint may delay the answer on purpose.
    :param is_text: true if the answer is text, and not JSON.
    :param is_gone_done: true for a deletion. If a retry is answered with 404, an earlier try has
        succeeded, although its answer was lost.
    """

    operation: str
    method: str
    path: str
    read: Callable[[Json], T]
    query: tuple[tuple[str, str], ...] = ()
    body: object = field(default=None, repr=False)
    safety: Safety = Safety.REPEATABLE
    hold_seconds: float = 0.0
    is_gone_done: bool = False
    with_token: bool = True
    is_text: bool = False

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def payload(self) -> bytes | None:
        """The body in bytes."""
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise usage(
                str(error), "give only values that JSON can represent", self.operation
            ) from error


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One part of a list.

    :param next: cursor of the next part. ``None`` for the last part.
    """

    items: tuple[T, ...]
    next: str | None


def _reader_of(of: type[T]) -> Callable[[Json], T]:
    return partial(read, of)


def _page(of: type[T], *keys: str) -> Callable[[Json], Page[T]]:
    def read_page(value: Json) -> Page[T]:
        found = [key for key in keys if isinstance(value, Mapping) and key in value]
        key = found[0] if found else keys[0]
        if not isinstance(value, Mapping) or not isinstance(value.get(key), list):
            raise ShapeError(f"answer.{key} is not a list")
        after = value.get("next")
        if not (after is None or isinstance(after, str)):
            raise ShapeError("answer.next is not text")
        items = (read(of, each, f"{key}[{at}]") for at, each in enumerate(value[key]))
        return Page(tuple(items), after or None)

    return read_page


def _nothing(value: Json) -> None:
    del value


def _query(**values: object) -> tuple[tuple[str, str], ...]:
    """Build a query. ``None`` is left out, and a list of values repeats the name."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        several = value if isinstance(value, (list, tuple)) else [value]
        for each in several:
            if isinstance(each, datetime):
                pairs.append((name.rstrip("_"), write_time(each)))
            elif each is not None:
                pairs.append((name.rstrip("_"), str(each)))
    return tuple(pairs)


def after(call: Call[Page[T]], cursor: str) -> Call[Page[T]]:
    """Ask for the next part of a list."""
    kept = tuple(pair for pair in call.query if pair[0] != "cursor")
    return replace(call, query=(*kept, ("cursor", cursor)))


# --- transfers ------------------------------------------------------------------------------------


def _transfer_path(id: str, verb: str = "") -> str:
    return f"/v1/transfers/{segment(id)}{verb}"


def submit(request: Request) -> Call[answers.Transfer]:
    """Submit a transfer. Repeatable: the id attaches a repetition to the first submission."""
    if request.id is None:
        raise AssertionError("an id is made before the first try")
    body = write(request)
    return Call(
        "submit the transfer", "POST", "/v1/transfers", _reader_of(answers.Transfer), body=body
    )


def submit_batch(
    requests: Iterable[Request], *, atomic: bool
) -> Call[tuple[answers.Transfer | DrayError, ...]]:
    """Submit several transfers. Repeatable, because each request has an id."""
    several = [write(request) for request in requests]
    if len(several) > IDS_MAX:
        raise usage(
            f"the call has {len(several)} transfers; at most {IDS_MAX} are allowed",
            "split the list into several calls",
        )
    body = {"transfers": several, "atomic": atomic}
    reader = partial(_results, len(several))
    return Call("submit the transfers", "POST", "/v1/transfers/batch", reader, body=body)


def receipt(id: str, *, files: bool) -> Call[str]:
    """Ask for the receipt of a transfer. The endpoint waits a few seconds for the receipt."""
    return Call(
        "get the receipt",
        "GET",
        _transfer_path(id, "/receipt"),
        _text,
        query=() if files else _query(files="false"),
        hold_seconds=15.0,
        is_text=True,
    )


def receipt_keys() -> Call[answers.ReceiptKeys]:
    """Ask for the public keys of the endpoint's receipts."""
    reader = _reader_of(answers.ReceiptKeys)
    return Call("get the keys of the receipts", "GET", "/v1/receipts/keys", reader)


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ShapeError("answer is not text")
    return value


def _results(count: int, value: Json) -> tuple[answers.Transfer | DrayError, ...]:
    results = value.get("results") if isinstance(value, Mapping) else None
    if not isinstance(results, list) or len(results) != count:
        raise ShapeError(f"answer.results is not a list of {count} results")
    return tuple(_result(each, f"results[{at}]") for at, each in enumerate(results))


def _result(value: Json, place: str) -> answers.Transfer | DrayError:
    if isinstance(value, Mapping) and isinstance(value.get("error"), Mapping):
        return error_of(value["error"])
    if isinstance(value, Mapping) and "transfer" in value:
        return read(answers.Transfer, value["transfer"], f"{place}.transfer")
    raise ShapeError(f"{place} is neither a transfer nor an error")


def transfers(
    *,
    state: str | Iterable[str] | None,
    owner: str | None,
    activity: str | None,
    class_: str | None,
    labels: Mapping[str, str] | None,
    source: str | None,
    destination: str | None,
    submitted_after: datetime | None,
    submitted_before: datetime | None,
    limit: int | None,
) -> Call[Page[answers.Transfer]]:
    """List transfers."""
    query = _query(
        state=[state] if isinstance(state, str) else list(state or ()),
        owner=owner,
        activity=activity,
        class_=class_,
        label=[f"{key}:{value}" for key, value in (labels or {}).items()],
        source=source,
        destination=destination,
        submitted_after=submitted_after,
        submitted_before=submitted_before,
        limit=limit,
    )
    reader = _page(answers.Transfer, "transfers")
    return Call("list transfers", "GET", "/v1/transfers", reader, query)


def query(ids: Iterable[str]) -> Call[dict[str, answers.Transfer | None]]:
    """Query several ids in one call."""
    several = list(ids)
    if len(several) > IDS_MAX:
        raise usage(
            f"the call has {len(several)} ids; at most {IDS_MAX} are allowed",
            "split the list into several calls",
        )
    body = {"ids": several}
    return Call("look up transfers", "POST", "/v1/transfers/query", _by_id, body=body)


def _by_id(value: Json) -> dict[str, answers.Transfer | None]:
    found = value.get("transfers") if isinstance(value, Mapping) else None
    if not isinstance(found, Mapping):
        raise ShapeError("answer.transfers is not an object")
    return {
        str(id): None if each is None else read(answers.Transfer, each, f"transfers.{id}")
        for id, each in found.items()
    }


def transfer(id: str) -> Call[answers.Transfer]:
    """Show a transfer."""
    return Call("look up the transfer", "GET", _transfer_path(id), _reader_of(answers.Transfer))


def files(id: str, *, state: str | None, limit: int | None) -> Call[Page[answers.FileOutcome]]:
    """List the outcomes of files."""
    reader = _page(answers.FileOutcome, "files")
    rows = _query(state=state, limit=limit)
    return Call("list the transfer's files", "GET", _transfer_path(id, "/files"), reader, rows)


def live_files(id: str) -> Call[LiveFiles]:
    """List the files under way, and the sums for the folders."""
    path = _transfer_path(id, "/live")
    return Call("list the files under way", "GET", path, _reader_of(LiveFiles))


def log(id: str, *, limit: int | None, cursor: str | None) -> Call[TransferLog]:
    """Read a page of the object log."""
    rows, reader = _query(limit=limit, cursor=cursor), _reader_of(TransferLog)
    return Call("read the object log", "GET", _transfer_path(id, "/log"), reader, rows)


def wait(id: str, *, hold: float) -> Call[answers.Transfer]:
    """Send one long poll."""
    rows = _query(timeout=max(1, round(hold)))
    operation = "wait for the transfer"
    reader = _reader_of(answers.Transfer)
    return Call(
        operation, "GET", _transfer_path(id, "/wait"), reader, rows, hold_seconds=max(1.0, hold)
    )


Verb = Literal["cancel", "pause", "resume", "retry"]


def act(
    id: str, verb: Verb, *, purge: bool | None = None, version: int | None = None
) -> Call[answers.Transfer]:
    """Cancel, pause, resume or retry. A repeated ``retry`` would start a further attempt."""
    safety = Safety.ONCE if verb == "retry" else Safety.REPEATABLE
    body: dict[str, object] = {} if purge is None else {"purge": purge}
    if version is not None:
        body["version"] = version
    reader = _reader_of(answers.Transfer)
    place = _transfer_path(id, f"/{verb}")
    return Call(f"{verb} the transfer", "POST", place, reader, body=body, safety=safety)


def change(id: str, **values: object) -> Call[answers.Transfer]:
    """Change the given fields of a transfer. ``None`` removes a bound."""
    body = {
        name.rstrip("_"): write(value)
        for name, value in values.items()
        if not isinstance(value, Keep)
    }
    if not body:
        raise usage(
            "the call gives no field to change",
            "give at least one field, such as priority, deadline or rate_max",
        )
    return Call(
        "change the transfer", "PATCH", _transfer_path(id), _reader_of(answers.Transfer), body=body
    )


def forget(id: str) -> Call[None]:
    """Forget a terminal transfer."""
    return Call("delete the transfer", "DELETE", _transfer_path(id), _nothing, is_gone_done=True)


# --- tickets --------------------------------------------------------------------------------------


def mint_ticket(
    transfer: str,
    direction: Literal["read", "write"],
    paths: Iterable[str],
    peer_key: str,
    *,
    lifetime_seconds: int | None,
    overwrite: str | None,
    renewable_seconds: int | None = None,
    bytes: int | None = None,
) -> Call[answers.Ticket]:
    """Mint a ticket. Repeatable: a ticket whose answer was lost expires unused."""
    body = {
        "transfer": transfer,
        "direction": direction,
        "paths": [paths] if isinstance(paths, str) else list(paths),
        "peer_key": peer_key,
        "lifetime_seconds": lifetime_seconds,
        "renewable_seconds": renewable_seconds,
        "overwrite": overwrite,
        "bytes": bytes,
    }
    given = {name: value for name, value in body.items() if value is not None}
    return Call("mint a ticket", "POST", "/v1/tickets", _reader_of(answers.Ticket), body=given)


def tickets(*, transfer: str | None, limit: int | None) -> Call[Page[answers.Ticket]]:
    """List the caller's tickets."""
    reader = _page(answers.Ticket, "tickets")
    rows = _query(transfer=transfer, limit=limit)
    return Call("list tickets", "GET", "/v1/tickets", reader, rows)


def ticket(id: str) -> Call[answers.Ticket]:
    """Show a ticket."""
    return Call(
        "look up the ticket", "GET", f"/v1/tickets/{segment(id)}", _reader_of(answers.Ticket)
    )


def change_ticket(id: str, **values: object) -> Call[answers.Ticket]:
    """Change the rates of a ticket's sessions. ``None`` removes a bound."""
    body = {name: value for name, value in values.items() if not isinstance(value, Keep)}
    if not body:
        raise usage(
            "the call gives no field to change",
            "give at least one of weight, rate_min and rate_max",
        )
    place = f"/v1/tickets/{segment(id)}"
    return Call("change the ticket", "PATCH", place, _reader_of(answers.Ticket), body=body)


def revoke_ticket(id: str) -> Call[None]:
    """Revoke a ticket."""
    place = f"/v1/tickets/{segment(id)}"
    return Call("revoke the ticket", "DELETE", place, _nothing, is_gone_done=True)


def renew_ticket(ticket: str, *, lifetime_seconds: int | None) -> Call[answers.Ticket]:
    """Renew a ticket. No token is sent, because the certificate identifies the caller."""
    body: dict[str, object] = {"ticket": ticket}
    if lifetime_seconds is not None:
        body["lifetime_seconds"] = lifetime_seconds
    reader = _reader_of(answers.Ticket)
    place = "/v1/tickets/renew"
    return Call("renew the ticket", "POST", place, reader, body=body, with_token=False)


# --- storage --------------------------------------------------------------------------------------


def stat(path: str) -> Call[answers.Entry]:
    """Show an entry."""
    rows = _query(path=path)
    return Call("get the attributes", "GET", "/v1/storage/stat", _reader_of(answers.Entry), rows)


def list_folder(path: str, *, limit: int | None) -> Call[Page[answers.Entry]]:
    """List a folder."""
    reader = _page(answers.Entry, "entries")
    rows = _query(path=path, limit=limit)
    return Call("list the folder", "GET", "/v1/storage/list", reader, rows)


def mkdir(path: str, *, parents: bool) -> Call[answers.Entry]:
    """Make a folder. Repeatable, because an existing folder counts as success."""
    body = {"path": path, "parents": parents}
    reader = _reader_of(answers.Entry)
    return Call("create the folder", "POST", "/v1/storage/mkdir", reader, body=body)


def rm(path: str, *, recursive: bool) -> Call[int]:
    """Remove an entry. Not repeatable: a new file may have the name before the repetition."""
    body = {"path": path, "recursive": recursive}
    place = "/v1/storage/rm"
    return Call("remove the path", "POST", place, _removed, body=body, safety=Safety.ONCE)


def _removed(value: Json) -> int:
    count = value.get("removed") if isinstance(value, Mapping) else None
    if not isinstance(count, int) or isinstance(count, bool):
        raise ShapeError("answer.removed is not a number")
    return count


def rename(path: str, to: str, *, replace: bool) -> Call[answers.Entry]:
    """Rename an entry. Not repeatable: another file may have the old name before the repetition."""
    body = {"from": path, "to": to, "replace": replace}
    reader = _reader_of(answers.Entry)
    place = "/v1/storage/rename"
    return Call("rename the path", "POST", place, reader, body=body, safety=Safety.ONCE)


def checksum(path: str, algorithm: str, *, hold: float) -> Call[answers.Checksum]:
    """Get the checksum of a file. The endpoint may have to read a large file, which takes long."""
    body = {"path": path, "algorithm": algorithm}
    reader = _reader_of(answers.Checksum)
    place = "/v1/storage/checksum"
    return Call("compute the checksum", "POST", place, reader, body=body, hold_seconds=hold)


def space(path: str) -> Call[answers.Space]:
    """Get the free space at a path."""
    rows = _query(path=path)
    return Call("read the free space", "GET", "/v1/storage/space", _reader_of(answers.Space), rows)


# --- admission, staging, the endpoint itself ------------------------------------------------------


def admission(requests: Iterable[Request]) -> Call[answers.Admission]:
    """Ask for the decision about requests without submitting them."""
    body = {"transfers": [write(request) for request in requests]}
    reader = _reader_of(answers.Admission)
    return Call("ask which transfers can be promised", "POST", "/v1/admission", reader, body=body)


def stage(way: Literal["in", "out"], request: StagingRequest) -> Call[answers.Staged]:
    """Stage a copy. Repeatable, because the request has an id."""
    if request.id is None:
        raise AssertionError("an id is made before the first try")
    reader = _reader_of(answers.Staged)
    place = f"/v1/staging/{way}"
    return Call(f"stage {way}", "POST", place, reader, body=write(request))


def stagings(
    *, application: str | None, state: str | None, limit: int | None
) -> Call[Page[answers.Staged]]:
    """List staged copies."""
    reader = _page(answers.Staged, "staging", "staged")
    rows = _query(application=application, state=state, limit=limit)
    return Call("list staged copies", "GET", "/v1/staging", reader, rows)


def staging(id: str) -> Call[answers.Staged]:
    """Show a staged copy."""
    place = f"/v1/staging/{segment(id)}"
    return Call("look up the staged copy", "GET", place, _reader_of(answers.Staged))


def targets(*, transfer: str | None) -> Call[StorageTargets]:
    """List the storage targets that running sessions use."""
    reader = _reader_of(StorageTargets)
    rows = _query(transfer=transfer)
    return Call("list the storage targets", "GET", "/v1/targets", reader, rows)


def tiers() -> Call[Tiers]:
    """List the tiers of the endpoint."""
    return Call("list the tiers", "GET", "/v1/tiers", _reader_of(Tiers))


def tier(name: str) -> Call[Tier]:
    """Get a tier with its versions."""
    return Call("look up the tier", "GET", f"/v1/tiers/{segment(name)}", _reader_of(Tier))


def request_write(tier: str, request: WriteRequest) -> Call[WriteJob]:
    """Ask for a turn to write a version. Repeatable, because the request has an id."""
    if request.id is None:
        raise AssertionError("an id is made before the first try")
    reader = _reader_of(WriteJob)
    place = f"/v1/tiers/{segment(tier)}/writes"
    return Call("request a write job", "POST", place, reader, body=write(request))


def writes(
    tier: str, *, application: str | None, state: str | None, limit: int | None
) -> Call[Page[WriteJob]]:
    """List the write jobs of a tier."""
    reader = _page(WriteJob, "writes")
    rows = _query(application=application, state=state, limit=limit)
    return Call("list write jobs", "GET", f"/v1/tiers/{segment(tier)}/writes", reader, rows)


def write_job(id: str) -> Call[WriteJob]:
    """Look up a write job, and renew its lease."""
    return Call("look up the write job", "GET", f"/v1/writes/{segment(id)}", _reader_of(WriteJob))


def renew_write(id: str) -> Call[WriteJob]:
    """Renew the lease of a write job."""
    place = f"/v1/writes/{segment(id)}/renew"
    return Call("renew the write job", "POST", place, _reader_of(WriteJob))


def complete_write(id: str) -> Call[WriteJob]:
    """End a write job, and declare that its version is complete. Repeatable."""
    place = f"/v1/writes/{segment(id)}/complete"
    return Call("complete the write job", "POST", place, _reader_of(WriteJob))


def delete_write(id: str) -> Call[WriteJob]:
    """End a write job without a version. Repeatable."""
    place = f"/v1/writes/{segment(id)}"
    return Call("delete the write job", "DELETE", place, _reader_of(WriteJob))


def pin(id: str, lifetime_seconds: int) -> Call[answers.Staged]:
    """Pin a fast copy. The lifetime starts with the last such call."""
    body = {"lifetime_seconds": lifetime_seconds}
    place = f"/v1/staging/{segment(id)}/pin"
    return Call("pin the staged copy", "POST", place, _reader_of(answers.Staged), body=body)


def evict(id: str) -> Call[answers.Staged]:
    """Evict a fast copy. Repeatable."""
    place = f"/v1/staging/{segment(id)}/evict"
    return Call("evict the staged copy", "POST", place, _reader_of(answers.Staged), body={})


def endpoint() -> Call[EndpointInfo]:
    """Get the endpoint's description."""
    return Call("describe the endpoint", "GET", "/v1/endpoint", _reader_of(EndpointInfo))


def load() -> Call[EndpointLoad]:
    """List the running sessions and the promises."""
    return Call("read the load", "GET", "/v1/endpoint/load", _reader_of(EndpointLoad))


def change_scheduling(**values: object) -> Call[Scheduling]:
    """Change the scheduling policy; ``None`` restores a default."""
    body = {name: value for name, value in values.items() if not isinstance(value, Keep)}
    if not body:
        raise usage(
            "the call gives no field to change",
            "give at least one field, such as policy, max_running or quota",
        )
    place = "/v1/endpoint/scheduling"
    return Call("change the scheduling", "PATCH", place, _reader_of(Scheduling), body=body)


def health() -> Call[Health]:
    """Get the endpoint's health. No token is sent, because everybody may call this."""
    reader = _reader_of(Health)
    return Call("check the endpoint's health", "GET", "/healthz", reader, with_token=False)
