"""Third-party copies: one endpoint fetches from, or sends to, another; the caller only makes calls.

The ticket is minted at the passive endpoint for the key of the active one, then the transfer is
submitted at the active one with the ticket beside the remote URL (docs/design/endpoint.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from dray.client import _calls as calls
from dray.client import _flows as flows
from dray.client._answers import EndpointInfo, Ticket, Transfer
from dray.client._async import AsyncClient
from dray.client._base import with_id
from dray.client._errors import make, usage
from dray.client._requests import Place, Request
from dray.client._sync import Client
from dray.client._urls import parse_place
from dray.errors import DrayError, DrayPermanentError, DrayUsageError

if TYPE_CHECKING:
    from types import TracebackType

    from dray.client._calls import Call

__all__ = ["AsyncCopy", "Copy", "copy", "copy_async"]

C = TypeVar("C", Client, AsyncClient)
End: TypeAlias = Literal["source", "destination"]


@dataclass(frozen=True, slots=True)
class Errand:
    """One call at one of the two endpoints."""

    end: End
    call: Call[Any]


Plan: TypeAlias = Generator[Errand, Any, Transfer]


def plan(
    source_url: str,
    destination_url: str,
    active: End,
    request: Request | None,
    lifetime_seconds: int | None,
) -> Plan:
    """Return the calls to both endpoints, in order."""
    _, source_path = parse_place(source_url)
    _, destination_path = parse_place(destination_url)
    template = request or Request(sources=(), destination="")
    # Fields that the call itself sets are not taken from the template.
    if template.sources or template.destination:
        raise usage(
            "the request names sources or a destination of its own",
            'leave them empty: Request(sources=(), destination="", ...)',
        )
    template = with_id(template)
    passive: End = "source" if active == "destination" else "destination"
    path = source_path if passive == "source" else destination_path
    info: EndpointInfo = yield Errand(active, calls.endpoint())
    ticket: Ticket = yield Errand(
        passive,
        calls.mint_ticket(
            template.id or "",
            "read" if passive == "source" else "write",
            [path],
            info.key,
            lifetime_seconds=lifetime_seconds,
            overwrite=template.overwrite if passive == "destination" else None,
        ),
    )
    if ticket.ticket is None:
        raise make("protocol", "permanent", "network", "mint a ticket", "the answer holds none")
    remote = Place(
        source_url if passive == "source" else destination_url,
        ticket.ticket,
        ticket.key,
        ticket.address,
    )
    submitted = dataclasses.replace(
        template,
        sources=(remote,) if passive == "source" else (source_path,),
        destination=remote if passive == "destination" else destination_path,
    )
    try:
        transfer: Transfer = yield Errand(active, calls.submit(submitted))
    except (DrayPermanentError, DrayUsageError):
        # The ticket is unused. After a temporary error it may be needed: the submission may have
        # arrived.
        with contextlib.suppress(DrayError):
            yield Errand(passive, calls.revoke_ticket(ticket.id))
        raise
    return transfer


class Copy:
    """A third-party copy that was submitted. As a context, closes the clients that it opened."""

    def __init__(self, client: Client, submitted: Transfer, own: list[Client]) -> None:
        """Store the client and the submitted transfer."""
        self._client = client
        self._own = own
        #: the transfer when it was submitted
        self.submitted = submitted

    @property
    def id(self) -> str:
        """The transfer's id, at the active endpoint."""
        return self.submitted.id

    def transfer(self) -> Transfer:
        """Look it up; see :meth:`Client.transfer`."""
        return self._client.transfer(self.id)

    def wait(self, *, timeout_seconds: float | None = None) -> Transfer:
        """Wait for it; see :meth:`Client.wait`."""
        return self._client.wait(self.id, timeout_seconds=timeout_seconds)

    def cancel(self, *, purge: bool = False) -> Transfer:
        """Cancel it; see :meth:`Client.cancel`."""
        return self._client.cancel(self.id, purge=purge)

    def close(self) -> None:
        """Close the clients that it opened; the copy continues."""
        for client in self._own:
            client.close()

    def __enter__(self) -> Copy:
        """Return the copy."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


class AsyncCopy:
    """A third-party copy that was submitted, awaiting; as :class:`Copy`."""

    def __init__(self, client: AsyncClient, submitted: Transfer, own: list[AsyncClient]) -> None:
        """Store the client and the submitted transfer."""
        self._client = client
        self._own = own
        #: the transfer when it was submitted
        self.submitted = submitted

    @property
    def id(self) -> str:
        """The transfer's id, at the active endpoint."""
        return self.submitted.id

    async def transfer(self) -> Transfer:
        """Await :meth:`Copy.transfer`."""
        return await self._client.transfer(self.id)

    async def wait(self, *, timeout_seconds: float | None = None) -> Transfer:
        """Await :meth:`Copy.wait`."""
        return await self._client.wait(self.id, timeout_seconds=timeout_seconds)

    async def cancel(self, *, purge: bool = False) -> Transfer:
        """Await :meth:`Copy.cancel`."""
        return await self._client.cancel(self.id, purge=purge)

    async def close(self) -> None:
        """Await :meth:`Copy.close`."""
        for client in self._own:
            await client.close()

    async def __aenter__(self) -> AsyncCopy:
        """Return the copy."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()


def copy(
    source_url: str,
    destination_url: str,
    *,
    source: Client | None = None,
    destination: Client | None = None,
    active: End = "destination",
    request: Request | None = None,
    ticket_lifetime_seconds: int | None = None,
) -> Copy:
    """Make one endpoint copy from or to another; the data does not pass through the caller.

    :param source_url: ``dray://HOST[:PORT]/ROOT/PATH``.
    :param destination_url: the same; with a slash at its end, a folder.
    :param source: the source's client; by default one for the URL's host, with the token that
        WLCG's discovery finds.
    :param destination: the destination's client, likewise.
    :param active: which of the two drives; the other gives it a ticket.
    :param request: all other fields, with empty ``sources`` and ``destination``.
    :param ticket_lifetime_seconds: by default the endpoint's; it is renewed while the transfer is
        live.
    :returns: a handle to wait for it or cancel it; it need not be kept.
    :raises DrayError: if one of the two refuses.
    """
    own: list[Client] = []
    try:
        ends: dict[End, Client] = {
            "source": source or _client(Client, source_url, own),
            "destination": destination or _client(Client, destination_url, own),
        }
        steps = plan(source_url, destination_url, active, request, ticket_lifetime_seconds)
        reply: Any = None
        error: DrayError | None = None
        while True:
            try:
                errand = steps.send(reply) if error is None else steps.throw(error)
            except StopIteration as end:
                return Copy(ends[active], end.value, own)
            reply = error = None
            client = ends[errand.end]
            try:
                reply = client._run(flows.carry(errand.call, client._policy))
            except DrayError as caught:
                error = caught
    except BaseException:
        for client in own:
            client.close()
        raise


async def copy_async(
    source_url: str,
    destination_url: str,
    *,
    source: AsyncClient | None = None,
    destination: AsyncClient | None = None,
    active: End = "destination",
    request: Request | None = None,
    ticket_lifetime_seconds: int | None = None,
) -> AsyncCopy:
    """Await :func:`copy`."""
    own: list[AsyncClient] = []
    try:
        ends: dict[End, AsyncClient] = {
            "source": source or _client(AsyncClient, source_url, own),
            "destination": destination or _client(AsyncClient, destination_url, own),
        }
        steps = plan(source_url, destination_url, active, request, ticket_lifetime_seconds)
        reply: Any = None
        error: DrayError | None = None
        while True:
            try:
                errand = steps.send(reply) if error is None else steps.throw(error)
            except StopIteration as end:
                return AsyncCopy(ends[active], end.value, own)
            reply = error = None
            client = ends[errand.end]
            try:
                reply = await client._run(flows.carry(errand.call, client._policy))
            except DrayError as caught:
                error = caught
    except BaseException:
        for client in own:
            await client.close()
        raise


def _client(of: type[C], url: str, own: list[C]) -> C:
    client = of(parse_place(url)[0].base)
    own.append(client)
    return client
