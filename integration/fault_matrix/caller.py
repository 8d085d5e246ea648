"""The client of a cell: a program that submits the transfer and prints every answer about it.

Usage: ``python -m integration.fault_matrix.caller SETTINGS``. The file SETTINGS contains the
endpoints, their tokens and the request, as :meth:`integration.fault_matrix.scene.Scene.settings`
writes them. The exit code is 0 if the transfer is done, otherwise 1.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from dray.client import Client, Place, Policy, Request, Retry, Selection, Transfer

#: An endpoint that was killed needs up to a few seconds to start again.
CALLS = Policy(seconds=60, tries=600, first_pause=0.05, longest_pause=0.2)
POLL_SECONDS = 0.05


def _client(end: dict[str, str]) -> Client:
    return Client(end["url"], token=end["token"], pin=end["key"], policy=CALLS)


def _place(id: str, end: dict[str, str], reader_key: str) -> Place:
    with _client(end) as there:
        ticket = there.mint_ticket(id, "read", ["/data/tree"], reader_key)
    return Place(f"{end['url']}/data/tree", ticket.ticket, ticket.key, ticket.address)


def _say(transfer: Transfer) -> None:
    errors = [transfer.error, *(each.error for each in transfer.failures)]
    line = {
        "state": transfer.state,
        "attempt": transfer.attempt,
        "tries": transfer.tries,
        "durable": transfer.bytes.durable,
        "listed": transfer.bytes.listed,
        "resumed": transfer.bytes.resumed,
        "sent": transfer.bytes.sent,
        "files": transfer.files.done,
        "failed": transfer.files.failed,
        "kinds": sorted({each.kind for each in errors if each is not None}),
        "words": [str(each) for each in errors if each is not None] + list(transfer.notices),
    }
    print(json.dumps(line), flush=True)


def main(path: Path) -> int:
    """Submit the transfer, or attach to it if it exists. Follow it to its end."""
    given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    fields: dict[str, Any] = given["request"]
    sink = given["sink"]
    places = [_place(fields["id"], end, sink["key"]) for end in given["sources"]]
    with _client(sink) as here:
        request = Request(
            sources=places[0],
            replicas=places[1:] or None,
            destination="/out/",
            selection=Selection(recursive=True),
            retry=Retry(tries=30, interval_seconds=1),
            **fields,
        )
        transfer = here.submit(request)
        while not transfer.is_terminal:
            _say(transfer)
            time.sleep(POLL_SECONDS)
            transfer = here.transfer(fields["id"])
        _say(transfer)
    return 0 if transfer.state == "done" else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
