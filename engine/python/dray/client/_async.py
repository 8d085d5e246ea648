"""The awaiting client: each call of the API is a method, as in :class:`Client`.

tools/async_client.py generates this module from _sync.py. A test checks that both files agree.
"""

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
from dray.client._awaiting import Awaiting
from dray.client._base import staging_with_id, with_id, write_with_id
from dray.client._requests import KEEP, Keep
from dray.client._tiers import WriteJob

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping
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

__all__ = ["AsyncClient"]


class AsyncClient(Awaiting):
    """A client for :mod:`asyncio`. :class:`Client` documents each method.

    An instance belongs to the event loop (of :mod:`asyncio`) that first used it.
    """

    async def submit(self, request: Request) -> Transfer:
        """Await :meth:`Client.submit`."""
        return await self._run(flows.carry(calls.submit(with_id(request)), self._policy))

    async def submit_batch(
        self, requests: Iterable[Request], *, atomic: bool = False
    ) -> tuple[Transfer | DrayError, ...]:
        """Await :meth:`Client.submit_batch`."""
        several = [with_id(request) for request in requests]
        call = calls.submit_batch(several, atomic=atomic)
        return await self._run(flows.carry(call, self._policy))

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
    ) -> AsyncGenerator[Transfer, None]:
        """Iterate over :meth:`Client.transfers`."""
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

    async def query(self, ids: Iterable[str]) -> dict[str, Transfer | None]:
        """Await :meth:`Client.query`."""
        return await self._run(flows.carry(calls.query(ids), self._policy))

    async def transfer(self, id: str) -> Transfer:
        """Await :meth:`Client.transfer`."""
        return await self._run(flows.carry(calls.transfer(id), self._policy))

    def files(
        self, id: str, *, state: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[FileOutcome, None]:
        """Iterate over :meth:`Client.files`."""
        call = calls.files(id, state=state, limit=limit)
        return self._iterate(FileOutcome, flows.pages(call, self._policy))

    async def live_files(self, id: str) -> LiveFiles:
        """Await :meth:`Client.live_files`."""
        return await self._run(flows.carry(calls.live_files(id), self._policy))

    async def log(
        self, id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> TransferLog:
        """Await :meth:`Client.log`."""
        return await self._run(flows.carry(calls.log(id, limit=limit, cursor=cursor), self._policy))

    async def receipt(self, id: str, *, files: bool = True) -> str:
        """Await :meth:`Client.receipt`."""
        return await self._run(flows.carry(calls.receipt(id, files=files), self._policy))

    async def receipt_keys(self) -> ReceiptKeys:
        """Await :meth:`Client.receipt_keys`."""
        return await self._run(flows.carry(calls.receipt_keys(), self._policy))

    async def wait(self, id: str, *, timeout_seconds: float | None = None) -> Transfer:
        """Await :meth:`Client.wait`."""
        return await self._run(flows.wait(id, self._policy, timeout_seconds))

    async def cancel(self, id: str, *, purge: bool = False, version: int | None = None) -> Transfer:
        """Await :meth:`Client.cancel`."""
        call = calls.act(id, "cancel", purge=purge, version=version)
        return await self._run(flows.carry(call, self._policy))

    async def pause(self, id: str) -> Transfer:
        """Await :meth:`Client.pause`."""
        return await self._run(flows.carry(calls.act(id, "pause"), self._policy))

    async def resume(self, id: str) -> Transfer:
        """Await :meth:`Client.resume`."""
        return await self._run(flows.carry(calls.act(id, "resume"), self._policy))

    async def retry(self, id: str) -> Transfer:
        """Await :meth:`Client.retry`."""
        return await self._run(flows.carry(calls.act(id, "retry"), self._policy))

    async def change(
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
        """Await :meth:`Client.change`."""
        return await self._run(
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

    async def forget(self, id: str) -> None:
        """Await :meth:`Client.forget`."""
        await self._run(flows.carry(calls.forget(id), self._policy))

    def events(
        self, *, transfer: str | None = None, after: int | None = None
    ) -> AsyncGenerator[Event, None]:
        """Iterate over :meth:`Client.events`."""
        return self._iterate(Event, flows.events(transfer, after, self._policy))

    async def mint_ticket(
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
        """Await :meth:`Client.mint_ticket`."""
        return await self._run(
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
    ) -> AsyncGenerator[Ticket, None]:
        """Iterate over :meth:`Client.tickets`."""
        return self._iterate(
            Ticket, flows.pages(calls.tickets(transfer=transfer, limit=limit), self._policy)
        )

    async def ticket(self, id: str) -> Ticket:
        """Await :meth:`Client.ticket`."""
        return await self._run(flows.carry(calls.ticket(id), self._policy))

    async def change_ticket(
        self,
        id: str,
        *,
        weight: int | Keep = KEEP,
        rate_min: int | Keep | None = KEEP,
        rate_max: int | Keep | None = KEEP,
    ) -> Ticket:
        """Await :meth:`Client.change_ticket`."""
        call = calls.change_ticket(id, weight=weight, rate_min=rate_min, rate_max=rate_max)
        return await self._run(flows.carry(call, self._policy))

    async def revoke_ticket(self, id: str) -> None:
        """Await :meth:`Client.revoke_ticket`."""
        await self._run(flows.carry(calls.revoke_ticket(id), self._policy))

    async def renew_ticket(self, ticket: str, *, lifetime_seconds: int | None = None) -> Ticket:
        """Await :meth:`Client.renew_ticket`."""
        return await self._run(
            flows.carry(calls.renew_ticket(ticket, lifetime_seconds=lifetime_seconds), self._policy)
        )

    async def stat(self, path: str) -> Entry:
        """Await :meth:`Client.stat`."""
        return await self._run(flows.carry(calls.stat(path), self._policy))

    def list(self, path: str, *, limit: int | None = None) -> AsyncGenerator[Entry, None]:
        """Iterate over :meth:`Client.list`."""
        return self._iterate(Entry, flows.pages(calls.list_folder(path, limit=limit), self._policy))

    async def mkdir(self, path: str, *, parents: bool = True) -> Entry:
        """Await :meth:`Client.mkdir`."""
        return await self._run(flows.carry(calls.mkdir(path, parents=parents), self._policy))

    async def rm(self, path: str, *, recursive: bool = False) -> int:
        """Await :meth:`Client.rm`."""
        return await self._run(flows.carry(calls.rm(path, recursive=recursive), self._policy))

    async def rename(self, path: str, to: str, *, replace: bool = False) -> Entry:
        """Await :meth:`Client.rename`."""
        return await self._run(flows.carry(calls.rename(path, to, replace=replace), self._policy))

    async def checksum(
        self,
        path: str,
        algorithm: Literal["adler32", "crc32c"] = "adler32",
        *,
        timeout_seconds: float = 3600.0,
    ) -> Checksum:
        """Await :meth:`Client.checksum`."""
        return await self._run(
            flows.carry(calls.checksum(path, algorithm, hold=timeout_seconds), self._policy)
        )

    async def space(self, path: str) -> Space:
        """Await :meth:`Client.space`."""
        return await self._run(flows.carry(calls.space(path), self._policy))

    async def admission(self, requests: Iterable[Request]) -> Admission:
        """Await :meth:`Client.admission`."""
        return await self._run(flows.carry(calls.admission(requests), self._policy))

    async def stage_in(self, request: StagingRequest) -> Staged:
        """Await :meth:`Client.stage_in`."""
        return await self._run(
            flows.carry(calls.stage("in", staging_with_id(request)), self._policy)
        )

    async def stage_out(self, request: StagingRequest) -> Staged:
        """Await :meth:`Client.stage_out`."""
        return await self._run(
            flows.carry(calls.stage("out", staging_with_id(request)), self._policy)
        )

    def stagings(
        self, *, application: str | None = None, state: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[Staged, None]:
        """Iterate over :meth:`Client.stagings`."""
        call = calls.stagings(application=application, state=state, limit=limit)
        return self._iterate(Staged, flows.pages(call, self._policy))

    async def staging(self, id: str) -> Staged:
        """Await :meth:`Client.staging`."""
        return await self._run(flows.carry(calls.staging(id), self._policy))

    async def targets(self, *, transfer: str | None = None) -> tuple[StorageTarget, ...]:
        """Await :meth:`Client.targets`."""
        found = await self._run(flows.carry(calls.targets(transfer=transfer), self._policy))
        return found.targets

    async def tiers(self) -> tuple[Tier, ...]:
        """Await :meth:`Client.tiers`."""
        found = await self._run(flows.carry(calls.tiers(), self._policy))
        return found.tiers

    async def tier(self, name: str) -> Tier:
        """Await :meth:`Client.tier`."""
        return await self._run(flows.carry(calls.tier(name), self._policy))

    async def request_write(self, tier: str, request: WriteRequest) -> WriteJob:
        """Await :meth:`Client.request_write`."""
        return await self._run(
            flows.carry(calls.request_write(tier, write_with_id(request)), self._policy)
        )

    def writes(
        self,
        tier: str,
        *,
        application: str | None = None,
        state: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[WriteJob, None]:
        """Iterate over :meth:`Client.writes`."""
        return self._iterate(
            WriteJob,
            flows.pages(
                calls.writes(tier, application=application, state=state, limit=limit), self._policy
            ),
        )

    async def write_job(self, id: str) -> WriteJob:
        """Await :meth:`Client.write_job`."""
        return await self._run(flows.carry(calls.write_job(id), self._policy))

    async def renew_write(self, id: str) -> WriteJob:
        """Await :meth:`Client.renew_write`."""
        return await self._run(flows.carry(calls.renew_write(id), self._policy))

    async def complete_write(self, id: str) -> WriteJob:
        """Await :meth:`Client.complete_write`."""
        return await self._run(flows.carry(calls.complete_write(id), self._policy))

    async def delete_write(self, id: str) -> WriteJob:
        """Await :meth:`Client.delete_write`."""
        return await self._run(flows.carry(calls.delete_write(id), self._policy))

    async def pin_staging(self, id: str, lifetime_seconds: int) -> Staged:
        """Await :meth:`Client.pin_staging`."""
        return await self._run(flows.carry(calls.pin(id, lifetime_seconds), self._policy))

    async def evict_staging(self, id: str) -> Staged:
        """Await :meth:`Client.evict_staging`."""
        return await self._run(flows.carry(calls.evict(id), self._policy))

    async def tape_stage(self, files: Iterable[TapeFile]) -> str:
        """Await :meth:`Client.tape_stage`."""
        return await self._run(flows.carry(tape.stage(files), self._policy))

    async def tape_progress(self, id: str) -> TapeStage:
        """Await :meth:`Client.tape_progress`."""
        return await self._run(flows.carry(tape.progress(id), self._policy))

    async def tape_release(self, id: str, paths: Iterable[str]) -> None:
        """Await :meth:`Client.tape_release`."""
        await self._run(flows.carry(tape.release(id, paths), self._policy))

    async def tape_localities(self, paths: Iterable[str]) -> dict[str, TapeLocality]:
        """Await :meth:`Client.tape_localities`."""
        return await self._run(flows.carry(tape.localities(paths), self._policy))

    async def endpoint(self) -> EndpointInfo:
        """Await :meth:`Client.endpoint`."""
        return await self._run(flows.carry(calls.endpoint(), self._policy))

    async def load(self) -> EndpointLoad:
        """Await :meth:`Client.load`."""
        return await self._run(flows.carry(calls.load(), self._policy))

    async def change_scheduling(
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
        """Await :meth:`Client.change_scheduling`."""
        return await self._run(
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

    async def health(self) -> Health:
        """Await :meth:`Client.health`."""
        return await self._run(flows.carry(calls.health(), self._policy))
