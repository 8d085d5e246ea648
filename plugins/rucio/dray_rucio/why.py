"""Print why the files of a rule do not move, or when the rule is expected to end.

    python -m dray_rucio why RULE [--json] [--files N]
    python -m dray_rucio eta RULE [--json] [--files N]

Run both commands with the Python and the rucio.cfg of Rucio's daemons.
The commands change nothing.

Exit codes of why: 0 nothing prevents the files from moving; 1 the command found a cause; 2 usage
error; 3 the command cannot read the rule. Exit codes of eta: 0 the end is known for all files, or
the rule is OK; 1 the end is not known for some files; 2 and 3 as above.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dray import DrayError, DrayUsageError
from dray.client import Request
from dray_rucio import causes, eta
from dray_rucio.causes import Answers, Cause
from dray_rucio.globus_places import is_globus
from dray_rucio.hosts import QUERY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dray.client import AdmissionVerdict, Client, Transfer
    from dray_rucio.facts import RuleFacts
    from dray_rucio.hosts import Hosts

__all__ = ["ask_endpoints", "eta_main", "why_main"]

OFFERS_MAX = 20
"""Maximum number of transfers at an endpoint for which a counter-offer is requested."""
NAMED_MAX = 3
"""Number of files that are named for each cause."""


def ask_endpoints(rule: RuleFacts, hosts: Hosts) -> Answers:
    """Call each endpoint of a rule, and query the rule's transfers and Globus tasks.

    Each endpoint is called with a short timeout. If an endpoint does not answer, the result reports
    it as unreachable.
    """
    wanted: dict[str, list[str]] = {}
    for file in rule.files:
        for rse in (file.destination, *(source.rse for source in file.sources)):
            host = causes.host_of(rse)
            if host is not None:
                wanted.setdefault(host, [])
        request = file.request
        is_ours = request is not None and request.is_live and request.state == "SUBMITTED"
        if request is not None and is_ours and request.tool == "dray" and request.host:
            wanted.setdefault(request.host, []).append(request.transfer)
    errors: dict[str, DrayError] = {}
    transfers: dict[str, Transfer | None] = {}
    offers: dict[str, AdmissionVerdict] = {}
    for host, ids in wanted.items():
        try:
            if is_globus(host):
                # Only now, because importing Rucio reads its configuration and takes seconds.
                from dray_rucio.globus import ask

                transfers.update(ask(ids))
                continue
            client = hosts.of(host, hurried=True)
            client.endpoint()
            found = _transfers(client, sorted(set(ids)))
            transfers.update(found)
            offers.update(_offers(client, found))
        except DrayError as error:
            errors[host] = error
    return Answers(errors, transfers, offers)


def _transfers(client: Client, ids: Sequence[str]) -> dict[str, Transfer | None]:
    found: dict[str, Transfer | None] = {}
    for first in range(0, len(ids), QUERY_MAX):
        found.update(client.query(ids[first : first + QUERY_MAX]))
    return found


def _offers(
    client: Client, transfers: Mapping[str, Transfer | None]
) -> dict[str, AdmissionVerdict]:
    """Ask again for the deadlines that the endpoint has not promised, for its counter-offers."""
    offers: dict[str, AdmissionVerdict] = {}
    refused = [each for each in transfers.values() if each and causes.is_refused(each)]
    for transfer in refused[:OFFERS_MAX]:
        asked = transfer.request
        request = Request(
            sources=[each["url"] for each in asked["sources"]],
            destination=asked["destination"]["url"],
            deadline=datetime.fromisoformat(asked["deadline"].replace("Z", "+00:00")),
            rate_max=asked.get("rate_max"),
            bytes_expected=max(transfer.bytes.listed - transfer.bytes.durable, 1),
        )
        try:
            verdict = client.admission([request]).transfers[0]
        except DrayUsageError:
            # The deadline has passed since, or the source cannot be checked without a ticket.
            continue
        offers[transfer.id] = verdict
    return offers


def why_main(words: Sequence[str]) -> int:
    """Run the command ``why``. Return its exit code."""
    return _main("why", words, _why)


def eta_main(words: Sequence[str]) -> int:
    """Run the command ``eta``. Return its exit code."""
    return _main("eta", words, _eta)


def _main(
    name: str, words: Sequence[str], answer: Callable[[RuleFacts, Answers, bool], int]
) -> int:
    about, _, codes = (__doc__ or "").partition("Exit codes of why")
    parser = argparse.ArgumentParser(
        prog=f"python -m dray_rucio {name}",
        description=about,
        epilog=f"Exit codes of why{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rule", metavar="RULE", help="id of the rule")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--files",
        type=int,
        default=1000,
        metavar="N",
        help="examine at most N files that are not at their destinations (default: %(default)s)",
    )
    options = parser.parse_args(words)
    if options.files < 1:
        parser.error("--files must be at least 1")
    try:
        # Only now, because importing Rucio reads its configuration and takes seconds.
        from dray_rucio.reading import read_rule
        from dray_rucio.transfertool import hosts

        rule = read_rule(options.rule.replace("-", ""), options.files)
        answers = ask_endpoints(rule, hosts)
    except Exception as error:
        print(
            f"dray_rucio: cannot examine rule {options.rule}: {type(error).__name__}: {error}; "
            "check the id, and run the command with the rucio.cfg of Rucio's daemons",
            file=sys.stderr,
        )
        return 3
    return answer(rule, answers, options.json)


def _why(rule: RuleFacts, answers: Answers, is_json: bool) -> int:
    found: dict[Cause, list[str]] = {}
    moving: list[str] = []
    for cause in causes.causes_of_rule(rule):
        found[cause] = []
    for file in rule.files:
        reasons = causes.causes_of_file(file, rule, answers)
        for cause in reasons:
            found.setdefault(cause, []).append(file.did)
        if not reasons:
            moving.append(file.did)
    if is_json:
        print(json.dumps(_why_words(rule, found, moving)))
    else:
        print(_headline(rule))
        for cause, files in found.items():
            print(f"\n{cause.code}: {cause.text}")
            if files:
                more = f" and {len(files) - NAMED_MAX} more" if len(files) > NAMED_MAX else ""
                print(f"  files:  {', '.join(files[:NAMED_MAX])}{more}")
            print(f"  remedy: {cause.remedy}")
        if moving:
            print(f"\n{len(moving)} of the examined files are moving")
    return 1 if found else 0


def _headline(rule: RuleFacts) -> str:
    words = (
        f"rule {rule.id} ({rule.did} at {rule.rse_expression}) is {rule.state}: {rule.done} files "
        f"are at their destinations, {rule.missing} are missing"
    )
    if len(rule.files) < rule.missing:
        words += f"; {len(rule.files)} of the missing files were examined (--files)"
    return words


def _rule_words(rule: RuleFacts) -> dict[str, Any]:
    return {
        "rule": rule.id,
        "did": rule.did,
        "rse_expression": rule.rse_expression,
        "state": rule.state,
        "done": rule.done,
        "missing": rule.missing,
        "examined": len(rule.files),
    }


def _why_words(rule: RuleFacts, found: dict[Cause, list[str]], moving: list[str]) -> dict[str, Any]:
    listed = [{**cause._asdict(), "files": files} for cause, files in found.items()]
    return {**_rule_words(rule), "moving": len(moving), "causes": listed}


def _eta(rule: RuleFacts, answers: Answers, is_json: bool) -> int:
    found = eta.estimate(rule, answers)
    if is_json:
        end = None if found.end is None else found.end.isoformat()
        words = {**_rule_words(rule), "eta": end, "is_complete": found.is_complete}
        print(json.dumps({**words, "known": found.known, "unknown": dict(found.unknown)}))
    else:
        print(_headline(rule))
        print(found.story)
    return 0 if found.is_complete else 1
