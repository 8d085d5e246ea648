"""The blocking client: each call of the API is a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dray.client import _calls as calls
from dray.client import _flows as flows
from dray.client import _tape as tape
from dray.client._answers import (
    Admission,
    Checksum,
    Entry,
    Event,
    FileOutcome,
    ReceiptKeys,
    Space,
    Staged,
    Ticket,
    Transfer,
)
from dray.client._base import staging_with_id, with_id, write_with_id
from dray.client._blocking import Blocking
from dray.client._requests import KEEP, Keep
from dray.client._tiers import WriteJob

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from datetime import datetime

    from dray.client._endpoint import EndpointInfo, Health, Scheduling
    from dray.client._live import LiveFiles
    from dray.client._load import EndpointLoad
    from dray.client._log import TransferLog
    from dray.client._requests import Request, StagingRequest, WriteRequest
    from dray.client._tape import TapeFile, TapeLocality, TapeStage
    from dray.client._targets import StorageTarget
    from dray.client._tiers import Tier
    from dray.errors import DrayError

__all__ = ["Client"]


class Client(Blocking):
    """A client that blocks. Several threads may use one instance.

    A call that is safe to repeat is retried with growing pauses, within the policy's time. If
    another rule applies to a method, its description says so. Every call may raise
    :class:`DrayError`.
    """

    def submit(self, request: Request) -> Transfer:
        """Submit a transfer. If the same request was submitted before, attach to its transfer.

        The client retries this call. All tries use the same id, so a retry creates no second
        transfer.

        :param request: the transfer. If the request has no id, the client chooses a UUID.
        :returns: the transfer. :attr:`Transfer.attached` is true if the transfer existed before.
        :raises DrayError: if the transfer is refused. The kind ``already_exists`` means that the id
            belongs to another request.
        """
        return self._run(flows.carry(calls.submit(with_id(request)), self._policy))

    def submit_batch(
        self, requests: Iterable[Request], *, atomic: bool = False
    ) -> tuple[Transfer | DrayError, ...]:
        """Submit up to 1000 transfers in one call.

        :param requests: the transfers. If a request has no id, the client chooses a UUID.
        :param atomic: submit all transfers or none of them.
        :returns: a transfer or an error for each request, in the order of the requests. A refusal
            of a single request is not raised.
        :raises DrayError: if the batch as a whole is refused.
        """
        several = [with_id(request) for request in requests]
        call = calls.submit_batch(several, atomic=atomic)
        return self._run(flows.carry(call, self._policy))

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
        """List transfers, newest first. The client requests a page when the iteration needs it.

        :param state: one or several states, or ``live`` or ``terminal``.
        :param owner: only transfers of this owner.
        :param activity: only transfers of this activity.
        :param class_: only transfers of this class.
        :param labels: only transfers that have all of these labels.
        :param source: only transfers whose source starts with this text.
        :param destination: only transfers whose destination starts with this text.
        :param submitted_after: only transfers submitted after this time, with a time zone.
        :param submitted_before: only transfers submitted before this time, with a time zone.
        :param limit: number of transfers per page, at most 1000. Does not limit the total number.
        """
        call = calls.transfers(
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
        )
        return self._iterate(Transfer, flows.pages(call, self._policy))

    def query(self, ids: Iterable[str]) -> dict[str, Transfer | None]:
        """Query up to 1000 transfers in one call.

        :returns: the transfers by id. ``None`` if the caller may see no transfer with the id.
        """
        return self._run(flows.carry(calls.query(ids), self._policy))

    def transfer(self, id: str) -> Transfer:
        """Return a transfer.

        :raises DrayPermanentError: of kind ``not_found`` if the caller may see no transfer with the
            id.
        """
        return self._run(flows.carry(calls.transfer(id), self._policy))

    def files(
        self, id: str, *, state: str | None = None, limit: int | None = None
    ) -> Generator[FileOutcome, None, None]:
        """List the outcomes of a transfer's files.

        :param state: ``done`` or ``failed``. By default both.
        :param limit: number of files per page.
        """
        call = calls.files(id, state=state, limit=limit)
        return self._iterate(FileOutcome, flows.pages(call, self._policy))

    def live_files(self, id: str) -> LiveFiles:
        """Return the files of a transfer that are under way now, and sums for its folders."""
        return self._run(flows.carry(calls.live_files(id), self._policy))

    def log(self, id: str, *, limit: int | None = None, cursor: str | None = None) -> TransferLog:
        """Explain at most ``limit`` files of the object log; ``cursor`` is ``next`` of a page."""
        return self._run(flows.carry(calls.log(id, limit=limit, cursor=cursor), self._policy))

    def receipt(self, id: str, *, files: bool = True) -> str:
        """Return the receipt of a transfer's last attempt, as it is signed.

        :param files: false to return only the signed head, without the list of files.
        """
        return self._run(flows.carry(calls.receipt(id, files=files), self._policy))

    def receipt_keys(self) -> ReceiptKeys:
        """Return the public keys of the endpoint's receipts, and the newest receipt."""
        return self._run(flows.carry(calls.receipt_keys(), self._policy))

    def wait(self, id: str, *, timeout_seconds: float | None = None) -> Transfer:
        """Wait until a transfer is terminal. Restarts of the endpoint do not end the wait.

        :param timeout_seconds: time after which to give up. By default never.
        :returns: the transfer, which may have failed: see :meth:`Transfer.raise_for_failures`.
        :raises DrayTemporaryError: of kind ``timed_out`` after the timeout, or if the endpoint was
            unreachable for longer than the policy's ``outage_seconds``. The transfer continues.
        """
        return self._run(flows.wait(id, self._policy, timeout_seconds))

    def cancel(self, id: str, *, purge: bool = False, version: int | None = None) -> Transfer:
        """Cancel a transfer. Durable data is kept.

        :param purge: remove partial data too.
        :param version: cancel only if the transfer still has this :attr:`Transfer.version`.
        :raises DrayError: of kind ``already_exists`` if the transfer has another version by now.
        """
        call = calls.act(id, "cancel", purge=purge, version=version)
        return self._run(flows.carry(call, self._policy))

    def pause(self, id: str) -> Transfer:
        """Pause a transfer."""
        return self._run(flows.carry(calls.act(id, "pause"), self._policy))

    def resume(self, id: str) -> Transfer:
        """Resume a paused transfer."""
        return self._run(flows.carry(calls.act(id, "resume"), self._policy))

    def retry(self, id: str) -> Transfer:
        """Start a new attempt of a terminal transfer.

        The client does not repeat this call if its outcome is unknown, because each call starts an
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
        """Change a live transfer. The change takes effect within a second.

        Fields that are not given keep their values. ``None`` removes a bound.

        :param priority: 0 to 9.
        :param class_: ``realtime``, ``deadline`` or ``background``.
        :param deadline: new deadline, with a time zone.
        :param weight: 1 to 1000.
        :param rate_min: bytes per second.
        :param rate_max: bytes per second.
        :param labels: labels that replace all existing labels.
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
        """Follow events for as long as the caller iterates.

        After a lost connection, the client continues after the last event. An event of type ``gap``
        means that events are lost. The caller should then list its transfers.

        :param transfer: only events of this transfer.
        :param after: number of the event after which to start. By default only new events.
        :raises DrayTemporaryError: if the endpoint was unreachable for longer than the policy's
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
        bytes: int | None = None,
    ) -> Ticket:
        """Permit another endpoint to open sessions here, for one transfer.

        The client retries this call, and each try may mint a ticket. If an answer is lost, its
        ticket stays unused until it expires. Only the holder of the peer's key can use a ticket.

        :param transfer: id of the transfer.
        :param direction: ``read`` if the other endpoint may read the paths, ``write`` if it may
            write to them.
        :param paths: the permitted paths, ``/ROOT/...``.
        :param peer_key: fingerprint of the other endpoint (:meth:`endpoint`).
        :param lifetime_seconds: lifetime of the ticket unless it is renewed, by default one hour.
        :param renewable_seconds: time during which the holder, and the sessions that use the
            ticket, may renew it. By default the endpoint's maximum.
        :param overwrite: the strongest overwrite rule that the holder may use.
        :param bytes: number of bytes that the transfer will write. In a fast root of a tier, the
            ticket claims this space.
        :returns: the ticket with its secret. No other call returns the secret.
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
                    bytes=bytes,
                ),
                self._policy,
            )
        )

    def tickets(
        self, *, transfer: str | None = None, limit: int | None = None
    ) -> Generator[Ticket, None, None]:
        """List the caller's tickets, without their secrets.

        :param transfer: only tickets of this transfer.
        :param limit: number of tickets per page.
        """
        return self._iterate(
            Ticket, flows.pages(calls.tickets(transfer=transfer, limit=limit), self._policy)
        )

    def ticket(self, id: str) -> Ticket:
        """Return a ticket without its secret."""
        return self._run(flows.carry(calls.ticket(id), self._policy))

    def change_ticket(
        self,
        id: str,
        *,
        weight: int | Keep = KEEP,
        rate_min: int | Keep | None = KEEP,
        rate_max: int | Keep | None = KEEP,
    ) -> Ticket:
        """Change the rates of a ticket's sessions at this endpoint. Takes effect within a second.

        Fields that are not given keep their values. ``None`` removes a bound. If the other end has
        a lower rate, the lower rate applies.

        :param weight: 1 to 1000.
        :param rate_min: bytes per second.
        :param rate_max: bytes per second.
        """
        call = calls.change_ticket(id, weight=weight, rate_min=rate_min, rate_max=rate_max)
        return self._run(flows.carry(call, self._policy))

    def revoke_ticket(self, id: str) -> None:
        """Revoke a ticket. This ends its sessions."""
        self._run(flows.carry(calls.revoke_ticket(id), self._policy))

    def renew_ticket(self, ticket: str, *, lifetime_seconds: int | None = None) -> Ticket:
        """Renew a ticket. The key of the client's certificate must be the ticket's ``peer_key``.

        :param ticket: the secret of the ticket. The call sends it instead of a token.
        :param lifetime_seconds: new lifetime from now.
        """
        return self._run(
            flows.carry(calls.renew_ticket(ticket, lifetime_seconds=lifetime_seconds), self._policy)
        )

    def stat(self, path: str) -> Entry:
        """Return the file or folder at a path, ``/ROOT/...``."""
        return self._run(flows.carry(calls.stat(path), self._policy))

    def list(self, path: str, *, limit: int | None = None) -> Generator[Entry, None, None]:
        """List a folder, sorted by name.

        :param limit: number of entries per page.
        """
        return self._iterate(Entry, flows.pages(calls.list_folder(path, limit=limit), self._policy))

    def mkdir(self, path: str, *, parents: bool = True) -> Entry:
        """Make a folder. An existing folder counts as success.

        :param parents: also make missing parent folders.
        """
        return self._run(flows.carry(calls.mkdir(path, parents=parents), self._policy))

    def rm(self, path: str, *, recursive: bool = False) -> int:
        """Remove a file or a folder.

        Not retried if the outcome is unknown, because the name may belong to a new file by then.

        :param recursive: remove a folder with all its contents.
        :returns: the number of removed entries.
        """
        return self._run(flows.carry(calls.rm(path, recursive=recursive), self._policy))

    def rename(self, path: str, to: str, *, replace: bool = False) -> Entry:
        """Rename a file or folder within its root. Not retried, for the same reason as :meth:`rm`.

        :param replace: replace an existing file with the new name.
        """
        return self._run(flows.carry(calls.rename(path, to, replace=replace), self._policy))

    def checksum(
        self,
        path: str,
        algorithm: Literal["adler32", "crc32c"] = "adler32",
        *,
        timeout_seconds: float = 3600.0,
    ) -> Checksum:
        """Return the checksum of a file, stored or computed now.

        :param timeout_seconds: maximum time for reading the file.
        """
        return self._run(
            flows.carry(calls.checksum(path, algorithm, hold=timeout_seconds), self._policy)
        )

    def space(self, path: str) -> Space:
        """Return the free space of the file system that holds a path."""
        return self._run(flows.carry(calls.space(path), self._policy))

    def admission(self, requests: Iterable[Request]) -> Admission:
        """Ask for the decision about requests without submitting them."""
        return self._run(flows.carry(calls.admission(requests), self._policy))

    def stage_in(self, request: StagingRequest) -> Staged:
        """Copy from the slow to the fast tier.

        The client retries this call. All tries use the same id, so a retry creates no second copy.
        """
        return self._run(flows.carry(calls.stage("in", staging_with_id(request)), self._policy))

    def stage_out(self, request: StagingRequest) -> Staged:
        """Copy from the fast to the slow tier.

        The client retries this call. All tries use the same id, so a retry creates no second copy.
        """
        return self._run(flows.carry(calls.stage("out", staging_with_id(request)), self._policy))

    def stagings(
        self, *, application: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Generator[Staged, None, None]:
        """List staged copies.

        :param limit: number of copies per page.
        """
        call = calls.stagings(application=application, state=state, limit=limit)
        return self._iterate(Staged, flows.pages(call, self._policy))

    def staging(self, id: str) -> Staged:
        """Return a staged copy."""
        return self._run(flows.carry(calls.staging(id), self._policy))

    def targets(self, *, transfer: str | None = None) -> tuple[StorageTarget, ...]:
        """Return the storage targets of all running sessions, or of a transfer's sessions."""
        found = self._run(flows.carry(calls.targets(transfer=transfer), self._policy))
        return found.targets

    def tiers(self) -> tuple[Tier, ...]:
        """Return the tiers of the endpoint, without their versions."""
        found = self._run(flows.carry(calls.tiers(), self._policy))
        return found.tiers

    def tier(self, name: str) -> Tier:
        """Return a tier with the versions that the caller may see."""
        return self._run(flows.carry(calls.tier(name), self._policy))

    def request_write(self, tier: str, request: WriteRequest) -> WriteJob:
        """Ask for a turn to write a version.

        The client retries this call. All tries use the same id, so a retry creates no second write
        job.

        :raises DrayError: if the tier can never hold the version.
        """
        return self._run(
            flows.carry(calls.request_write(tier, write_with_id(request)), self._policy)
        )

    def writes(
        self,
        tier: str,
        *,
        application: str | None = None,
        state: str | None = None,
        limit: int | None = None,
    ) -> Generator[WriteJob, None, None]:
        """List the write jobs of a tier, the newest first. No lease is renewed.

        :param state: only jobs that are ``waiting``, ``granted``, ``ended`` or ``expired``.
        :param limit: number of jobs per page.
        """
        return self._iterate(
            WriteJob,
            flows.pages(
                calls.writes(tier, application=application, state=state, limit=limit), self._policy
            ),
        )

    def write_job(self, id: str) -> WriteJob:
        """Return a write job, and renew its lease."""
        return self._run(flows.carry(calls.write_job(id), self._policy))

    def renew_write(self, id: str) -> WriteJob:
        """Renew the lease of a write job."""
        return self._run(flows.carry(calls.renew_write(id), self._policy))

    def complete_write(self, id: str) -> WriteJob:
        """End a write job, and declare that its version is complete.

        :raises DrayPermanentError: if the job is not granted, or if no file or folder exists at the
            job's path.
        """
        return self._run(flows.carry(calls.complete_write(id), self._policy))

    def delete_write(self, id: str) -> WriteJob:
        """End a write job without a version."""
        return self._run(flows.carry(calls.delete_write(id), self._policy))

    def pin_staging(self, id: str, lifetime_seconds: int) -> Staged:
        """Pin a fast copy, so that it is not evicted.

        :param lifetime_seconds: duration of the pin from now. 0 removes the pin.
        """
        return self._run(flows.carry(calls.pin(id, lifetime_seconds), self._policy))

    def evict_staging(self, id: str) -> Staged:
        """Evict a fast copy.

        :raises DrayPermanentError: while the copy is pinned, or if no slow copy is known.
        """
        return self._run(flows.carry(calls.evict(id), self._policy))

    def tape_stage(self, files: Iterable[TapeFile]) -> str:
        """Request to stage up to 10000 files to the fast root. Return the id of the request.

        The call succeeds even if the endpoint cannot stage a file. :meth:`tape_progress` reports
        this.
        """
        return self._run(flows.carry(tape.stage(files), self._policy))

    def tape_progress(self, id: str) -> TapeStage:
        """Return a stage request with the progress of its files."""
        return self._run(flows.carry(tape.progress(id), self._policy))

    def tape_release(self, id: str, paths: Iterable[str]) -> None:
        """Cancel the staging of files that are not staged yet, and end the pins of the others."""
        self._run(flows.carry(tape.release(id, paths), self._policy))

    def tape_localities(self, paths: Iterable[str]) -> dict[str, TapeLocality]:
        """Return for each path the roots that have the file."""
        return self._run(flows.carry(tape.localities(paths), self._policy))

    def endpoint(self) -> EndpointInfo:
        """Return the endpoint's description, and the caller's identity there."""
        return self._run(flows.carry(calls.endpoint(), self._policy))

    def load(self) -> EndpointLoad:
        """Return the running sessions and the promises that the caller may see."""
        return self._run(flows.carry(calls.load(), self._policy))

    def change_scheduling(
        self,
        *,
        policy: str | Keep = KEEP,
        max_running: int | Keep | None = KEEP,
        quota: int | Keep = KEEP,
        round_robin_by: str | Keep = KEEP,
        aging_seconds: int | Keep = KEEP,
        patience_seconds: int | Keep = KEEP,
        held_max: int | Keep = KEEP,
    ) -> Scheduling:
        """Change the scheduling policy immediately, until the endpoint restarts.

        For administrators. Fields that are not given keep their values.

        :param policy: name of the policy. The endpoint's configuration lists the names.
        :param max_running: maximum number of concurrent transfers. ``None`` means the default of
            the policy.
        :param quota: with ``round_robin``: number of bytes in one turn.
        :param round_robin_by: with ``round_robin``: ``owners`` if the owners of transfers take
            turns, ``pairs`` if the pairs of endpoints take turns.
        :param aging_seconds: with ``priority``: time after which the priority of a waiting transfer
            rises by one.
        :param patience_seconds: with ``fair``: at most once in this time, the endpoint first starts
            the transfer that has waited longest, if it has waited longer than this time.
        :param held_max: maximum number of held transfers that keep their sessions.
        """
        return self._run(
            flows.carry(
                calls.change_scheduling(
                    policy=policy,
                    max_running=max_running,
                    quota=quota,
                    round_robin_by=round_robin_by,
                    aging_seconds=aging_seconds,
                    patience_seconds=patience_seconds,
                    held_max=held_max,
                ),
                self._policy,
            )
        )

    def health(self) -> Health:
        """Return the health of the endpoint. No token is sent.

        :raises DrayTemporaryError: if the endpoint is stopping or cannot be reached.
        """
        return self._run(flows.carry(calls.health(), self._policy))
