"""Third-party copies: one endpoint copies from or to another, and the caller only makes calls.

The client mints a ticket at the passive endpoint for the key of the active endpoint. It then
submits the transfer to the active endpoint. In this request, the remote place contains the URL and
the ticket (:class:`Place`). docs/design/endpoint.md explains the roles.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from dray.client import _calls as calls
from dray.client import _flows as flows
from dray.client._answers import Ticket, Transfer
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
    from dray.client._endpoint import EndpointInfo

__all__ = ["AsyncCopy", "Copy", "copy", "copy_async"]

C = TypeVar("C", Client, AsyncClient)
End: TypeAlias = Literal["source", "destination"]


@dataclass(frozen=True, slots=True)
class Errand:
    """A call to the endpoint of the source or of the destination."""

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
    """Yield the calls to both endpoints in order. Return the submitted transfer."""
    _, source_path = parse_place(source_url)
    _, destination_path = parse_place(destination_url)
    template = request or Request(sources=(), destination="")
    # The arguments of this function set these fields, so the template must leave them empty.
    if template.sources or template.destination:
        raise usage(
            "the request already has sources or a destination, which this call sets",
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
            bytes=template.bytes_expected if passive == "destination" else None,
        ),
    )
    if ticket.ticket is None:
        cause = "the endpoint's answer contains no ticket"
        raise make("protocol", "permanent", "network", "mint a ticket", cause)
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
        # Revoke the unused ticket. After a temporary error the submission may have arrived, so the
        # ticket is kept.
        with contextlib.suppress(DrayError):
            yield Errand(passive, calls.revoke_ticket(ticket.id))
        raise
    return transfer


class Copy:
    """A submitted third-party copy.

    At the end of a ``with`` block, the clients that :func:`copy` has opened are closed.
    """

    def __init__(self, client: Client, submitted: Transfer, own: list[Client]) -> None:
        """Store the client and the submitted transfer."""
        self._client = client
        self._own = own
        #: The transfer at the time of its submission.
        self.submitted = submitted

    @property
    def id(self) -> str:
        """Id of the transfer at the active endpoint."""
        return self.submitted.id

    def transfer(self) -> Transfer:
        """Return the transfer. See :meth:`Client.transfer`."""
        return self._client.transfer(self.id)

    def wait(self, *, timeout_seconds: float | None = None) -> Transfer:
        """Wait for the transfer. See :meth:`Client.wait`."""
        return self._client.wait(self.id, timeout_seconds=timeout_seconds)

    def cancel(self, *, purge: bool = False) -> Transfer:
        """Cancel the transfer. See :meth:`Client.cancel`."""
        return self._client.cancel(self.id, purge=purge)

    def close(self) -> None:
        """Close the clients that this object has opened. The copy continues."""
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
    """A submitted third-party copy for :mod:`asyncio`. Otherwise as :class:`Copy`."""

    def __init__(self, client: AsyncClient, submitted: Transfer, own: list[AsyncClient]) -> None:
        """Store the client and the submitted transfer."""
        self._client = client
        self._own = own
        #: The transfer at the time of its submission.
        self.submitted = submitted

    @property
    def id(self) -> str:
        """Id of the transfer at the active endpoint."""
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
    """Make one endpoint copy from or to another. The data does not pass through the caller.

    :param source_url: ``dray://HOST[:PORT]/ROOT/PATH``.
    :param destination_url: a URL of the same form. A slash at its end means a folder.
    :param source: client of the source endpoint. By default a new client for the host in the URL,
        with the token that WLCG's discovery finds.
    :param destination: client of the destination endpoint. By default a new client for the host in
        the destination's URL.
    :param active: the endpoint that drives the transfer. The client gets a ticket for this endpoint
        from the other endpoint.
    :param request: all other fields of the request, with empty ``sources`` and ``destination``.
    :param ticket_lifetime_seconds: lifetime of the ticket, by default the endpoint's. The active
        endpoint renews the ticket while the transfer is live.
    :returns: a handle to wait for the copy or to cancel it. The copy continues without the handle.
    :raises DrayError: if one of the two endpoints refuses.
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
