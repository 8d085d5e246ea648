"""The blocking face: each call of the API is a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dray.client import _calls as calls
from dray.client import _flows as flows
from dray.client._answers import (
    Admission,
    Checksum,
    EndpointInfo,
    Entry,
    Event,
    FileOutcome,
    Health,
    Scheduling,
    Space,
    Staged,
    Ticket,
    Transfer,
)
from dray.client._base import staging_with_id, with_id
from dray.client._blocking import Blocking
from dray.client._requests import KEEP, Keep

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from datetime import datetime

    from dray.client._requests import Request, StagingRequest
    from dray.errors import DrayError

__all__ = ["Client"]


class Client(Blocking):
    """Speaks to an endpoint; blocks. Several threads may use one.

    What is safe is tried again by itself, with growing pauses and within the policy's time; which
    calls are, is said with each, and in the reference. Every call may raise :class:`DrayError`.
    """

    def submit(self, request: Request) -> Transfer:
        """Submit a transfer; the same request again attaches to it.

        Repeated by itself: the id is chosen here, before the first try.

        :param request: what to do; without an id it gets a UUID.
        :returns: the transfer; :attr:`Transfer.attached`: it was there already.
        :raises DrayError: if it is refused; ``already_exists``: the id is another request's.
        """
        return self._run(flows.carry(calls.submit(with_id(request)), self._policy))

    def submit_batch(
        self, requests: Iterable[Request], *, atomic: bool = False
    ) -> tuple[Transfer | DrayError, ...]:
        """Submit up to 1000 transfers at once.

        :param requests: what to do; each without an id gets one.
        :param atomic: all or none.
        :returns: in their order, what became of each; refusals are given, not raised.
        :raises DrayError: if the batch as a whole is refused.
        """
        return self._run(
            flows.carry(
                calls.submit_batch([with_id(request) for request in requests], atomic=atomic),
                self._policy,
            )
        )

    def transfers(
        self,
        *,
        state: str | Iterable[str] | None = None,
        owner: str | None = None,
        activity: str | None = None,
        class_: str | None = None,
        labels: Mapping[str, str] | None = None,
        source: str | None = None,
        destination: str | None = None,
        submitted_after: datetime | None = None,
        submitted_before: datetime | None = None,
        limit: int | None = None,
    ) -> Generator[Transfer, None, None]:
        """List transfers, newest first, asking for page after page while one iterates.

        :param state: one or several states, or ``live`` or ``terminal``.
        :param owner: whose.
        :param activity: of which activity.
        :param class_: of which class.
        :param labels: that have all of these.
        :param source: whose source begins so.
        :param destination: whose destination begins so.
        :param submitted_after: aware.
        :param submitted_before: aware.
        :param limit: transfers in one page, at most 1000; not how many come in all.
        """
        return self._iterate(
            Transfer,
            flows.pages(
                calls.transfers(
                    state=state,
                    owner=owner,
                    activity=activity,
                    class_=class_,
                    labels=labels,
                    source=source,
                    destination=destination,
                    submitted_after=submitted_after,
                    submitted_before=submitted_before,
                    limit=limit,
                ),
                self._policy,
            ),
        )

    def query(self, ids: Iterable[str]) -> dict[str, Transfer | None]:
        """Look up to 1000 transfers up at once.

        :returns: by id; ``None``: there is none that the caller may see.
        """
        return self._run(flows.carry(calls.query(ids), self._policy))

    def transfer(self, id: str) -> Transfer:
        """Look one transfer up.

        :raises DrayPermanentError: ``not_found``.
        """
        return self._run(flows.carry(calls.transfer(id), self._policy))

    def files(
        self, id: str, *, state: str | None = None, limit: int | None = None
    ) -> Generator[FileOutcome, None, None]:
        """List what became of a transfer's files.

        :param state: ``done`` or ``failed``; by default both.
        :param limit: files in one page.
        """
        return self._iterate(
            FileOutcome, flows.pages(calls.files(id, state=state, limit=limit), self._policy)
        )

    def wait(self, id: str, *, timeout_seconds: float | None = None) -> Transfer:
        """Wait until a transfer is terminal, through restarts of the endpoint.

        :param timeout_seconds: give up after so long; by default never.
        :returns: the transfer, ``done`` or not: see :meth:`Transfer.raise_for_failures`.
        :raises DrayTemporaryError: ``timed_out``, or the endpoint was away for longer than the
            policy's ``outage_seconds``; the transfer goes on.
        """
        return self._run(flows.wait(id, self._policy, timeout_seconds))

    def cancel(self, id: str, *, purge: bool = False, version: int | None = None) -> Transfer:
        """Cancel a transfer; what is safe stays.

        :param purge: remove partial data too.
        :param version: only if it is still of this :attr:`Transfer.version`.
        :raises DrayError: of kind ``already_exists`` when it was changed meanwhile.
        """
        call = calls.act(id, "cancel", purge=purge, version=version)
        return self._run(flows.carry(call, self._policy))

    def pause(self, id: str) -> Transfer:
        """Stop a transfer for a while."""
        return self._run(flows.carry(calls.act(id, "pause"), self._policy))

    def resume(self, id: str) -> Transfer:
        """Let a paused transfer go on."""
        return self._run(flows.carry(calls.act(id, "resume"), self._policy))

    def retry(self, id: str) -> Transfer:
        """Begin a new attempt of a terminal transfer.

        Not repeated by itself when nobody knows whether the first was carried out: each is an
        attempt.
        """
        return self._run(flows.carry(calls.act(id, "retry"), self._policy))

    def change(
        self,
        id: str,
        *,
        priority: int | Keep = KEEP,
        class_: str | Keep = KEEP,
        deadline: datetime | Keep | None = KEEP,
        weight: int | Keep = KEEP,
        rate_min: int | Keep | None = KEEP,
        rate_max: int | Keep | None = KEEP,
        labels: Mapping[str, str] | Keep | None = KEEP,
    ) -> Transfer:
        """Change a transfer while it lives; in effect within a second.

        What is not given stays; ``None`` takes a bound away.

        :param priority: 0 to 9.
        :param class_: ``realtime``, ``deadline`` or ``background``.
        :param deadline: aware.
        :param weight: 1 to 1000.
        :param rate_min: bytes per second.
        :param rate_max: bytes per second.
        :param labels: all of them anew.
        """
        return self._run(
            flows.carry(
                calls.change(
                    id,
                    priority=priority,
                    class_=class_,
                    deadline=deadline,
                    weight=weight,
                    rate_min=rate_min,
                    rate_max=rate_max,
                    labels=labels,
                ),
                self._policy,
            )
        )

    def forget(self, id: str) -> None:
        """Forget a terminal transfer."""
        self._run(flows.carry(calls.forget(id), self._policy))

    def events(
        self, *, transfer: str | None = None, after: int | None = None
    ) -> Generator[Event, None, None]:
        """Follow what happens, for as long as one iterates.

        Where the connection breaks, the next goes on behind the last event. An event of type
        ``gap`` says that some are gone: list what matters.

        :param transfer: of one transfer alone.
        :param after: behind the event of this number; by default from now on.
        :raises DrayTemporaryError: if the endpoint was away for longer than the policy's
            ``outage_seconds``.
        """
        return self._iterate(Event, flows.events(transfer, after, self._policy))

    def mint_ticket(
        self,
        transfer: str,
        direction: Literal["read", "write"],
        paths: Iterable[str],
        peer_key: str,
        *,
        lifetime_seconds: int | None = None,
        renewable_seconds: int | None = None,
        overwrite: str | None = None,
    ) -> Ticket:
        """Give another endpoint leave to open sessions here, for one transfer.

        Repeated by itself: a ticket whose answer was lost opens nothing without the peer's key, and
        expires.

        :param transfer: its id.
        :param direction: what the other may do here.
        :param paths: where, ``/ROOT/...``.
        :param peer_key: fingerprint of the other endpoint (:meth:`endpoint`).
        :param lifetime_seconds: by default an hour.
        :param renewable_seconds: for how long its sessions and its holder may keep it good; by
            default as long as the endpoint lets any be.
        :param overwrite: the most it may replace.
        :returns: the only answer that holds the secret.
        """
        return self._run(
            flows.carry(
                calls.mint_ticket(
                    transfer,
                    direction,
                    paths,
                    peer_key,
                    lifetime_seconds=lifetime_seconds,
                    renewable_seconds=renewable_seconds,
                    overwrite=overwrite,
                ),
                self._policy,
            )
        )

    def tickets(
        self, *, transfer: str | None = None, limit: int | None = None
    ) -> Generator[Ticket, None, None]:
        """List the caller's tickets, without their secrets.

        :param transfer: of one transfer alone.
        :param limit: tickets in one page.
        """
        return self._iterate(
            Ticket, flows.pages(calls.tickets(transfer=transfer, limit=limit), self._policy)
        )

    def ticket(self, id: str) -> Ticket:
        """Look a ticket up, without its secret."""
        return self._run(flows.carry(calls.ticket(id), self._policy))

    def change_ticket(
        self,
        id: str,
        *,
        weight: int | Keep = KEEP,
        rate_min: int | Keep | None = KEEP,
        rate_max: int | Keep | None = KEEP,
    ) -> Ticket:
        """Change what a ticket's sessions may take at this end; in effect within a second.

        What is not given stays; ``None`` takes a bound away; the lower end wins.

        :param weight: 1 to 1000.
        :param rate_min: bytes per second.
        :param rate_max: bytes per second.
        """
        return self._run(
            flows.carry(
                calls.change_ticket(id, weight=weight, rate_min=rate_min, rate_max=rate_max),
                self._policy,
            )
        )

    def revoke_ticket(self, id: str) -> None:
        """Revoke a ticket, which ends its sessions."""
        self._run(flows.carry(calls.revoke_ticket(id), self._policy))

    def renew_ticket(self, ticket: str, *, lifetime_seconds: int | None = None) -> Ticket:
        """Renew a ticket; the client's certificate must be that of its ``peer_key``.

        :param ticket: the secret; no token is shown.
        :param lifetime_seconds: from now.
        """
        return self._run(
            flows.carry(calls.renew_ticket(ticket, lifetime_seconds=lifetime_seconds), self._policy)
        )

    def stat(self, path: str) -> Entry:
        """Look at a file or folder, ``/ROOT/...``."""
        return self._run(flows.carry(calls.stat(path), self._policy))

    def list(self, path: str, *, limit: int | None = None) -> Generator[Entry, None, None]:
        """List a folder, sorted by name.

        :param limit: entries in one page.
        """
        return self._iterate(Entry, flows.pages(calls.list_folder(path, limit=limit), self._policy))

    def mkdir(self, path: str, *, parents: bool = True) -> Entry:
        """Make a folder, or find that it stands.

        :param parents: make those above too.
        """
        return self._run(flows.carry(calls.mkdir(path, parents=parents), self._policy))

    def rm(self, path: str, *, recursive: bool = False) -> int:
        """Remove a file, or a folder.

        Not repeated by itself when nobody knows whether it was done: what has the name by then may
        be somebody's new file.

        :param recursive: with everything in it.
        :returns: how many entries were removed.
        """
        return self._run(flows.carry(calls.rm(path, recursive=recursive), self._policy))

    def rename(self, path: str, to: str, *, replace: bool = False) -> Entry:
        """Give a file or folder another name within its root; repeated as little as :meth:`rm`.

        :param replace: what has the name already.
        """
        return self._run(flows.carry(calls.rename(path, to, replace=replace), self._policy))

    def checksum(
        self,
        path: str,
        algorithm: Literal["adler32", "crc32c"] = "adler32",
        *,
        timeout_seconds: float = 3600.0,
    ) -> Checksum:
        """Give the checksum of a file, kept or computed now.

        :param timeout_seconds: for reading the file.
        """
        return self._run(
            flows.carry(calls.checksum(path, algorithm, hold=timeout_seconds), self._policy)
        )

    def space(self, path: str) -> Space:
        """Ask how much space there is where a path lies."""
        return self._run(flows.carry(calls.space(path), self._policy))

    def admission(self, requests: Iterable[Request]) -> Admission:
        """Ask what would become of requests; nothing is changed."""
        return self._run(flows.carry(calls.admission(requests), self._policy))

    def stage_in(self, request: StagingRequest) -> Staged:
        """Copy from the slow to the fast tier; repeated by itself, as :meth:`submit` is."""
        return self._run(flows.carry(calls.stage("in", staging_with_id(request)), self._policy))

    def stage_out(self, request: StagingRequest) -> Staged:
        """Copy from the fast to the slow tier; repeated by itself, as :meth:`submit` is."""
        return self._run(flows.carry(calls.stage("out", staging_with_id(request)), self._policy))

    def stagings(
        self, *, application: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Generator[Staged, None, None]:
        """List staged copies.

        :param limit: copies in one page.
        """
        return self._iterate(
            Staged,
            flows.pages(
                calls.stagings(application=application, state=state, limit=limit), self._policy
            ),
        )

    def staging(self, id: str) -> Staged:
        """Look a staged copy up."""
        return self._run(flows.carry(calls.staging(id), self._policy))

    def pin_staging(self, id: str, lifetime_seconds: int) -> Staged:
        """Keep a fast copy from being freed for so long from now.

        :param lifetime_seconds: how long; 0 takes its pin away.
        """
        return self._run(flows.carry(calls.pin(id, lifetime_seconds), self._policy))

    def evict_staging(self, id: str) -> Staged:
        """Free a fast copy.

        :raises DrayPermanentError: while it is pinned, or when no slow copy is known.
        """
        return self._run(flows.carry(calls.evict(id), self._policy))

    def endpoint(self) -> EndpointInfo:
        """Ask who the endpoint is, and who it takes the caller for."""
        return self._run(flows.carry(calls.endpoint(), self._policy))

    def change_scheduling(
        self,
        *,
        policy: str | Keep = KEEP,
        at_once: int | Keep | None = KEEP,
        quota: int | Keep = KEEP,
        turns_of: str | Keep = KEEP,
        aging_seconds: int | Keep = KEEP,
        patience_seconds: int | Keep = KEEP,
        held_max: int | Keep = KEEP,
    ) -> Scheduling:
        """Change which transfers run at the endpoint, until it is started again; at once.

        For administrators. What is not given stays.

        :param policy: ``fair``, ``fcfs``, ``priority``, ``round_robin``, ``pairs``.
        :param at_once: transfers side by side; ``None`` for what suits the policy.
        :param quota: bytes of one turn of ``round_robin``.
        :param turns_of: who takes turns there: ``owners`` or ``pairs``.
        :param aging_seconds: with ``priority`` what waits rises one step in each.
        :param patience_seconds: with ``fair`` one start in each goes to what has waited longest.
        :param held_max: held transfers that keep their sessions.
        """
        return self._run(
            flows.carry(
                calls.change_scheduling(
                    policy=policy,
                    at_once=at_once,
                    quota=quota,
                    turns_of=turns_of,
                    aging_seconds=aging_seconds,
                    patience_seconds=patience_seconds,
                    held_max=held_max,
                ),
                self._policy,
            )
        )

    def health(self) -> Health:
        """Ask whether the endpoint takes new work; no token is shown.

        :raises DrayTemporaryError: if it stops, or cannot be reached.
        """
        return self._run(flows.carry(calls.health(), self._policy))
