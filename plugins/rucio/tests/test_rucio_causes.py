"""Tests of the causes for which files do not move, and of the expected end of a rule."""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from dray.client import AdmissionVerdict, Transfer
from dray_rucio.causes import CODES, Answers, Cause, causes_of_file, causes_of_rule
from dray_rucio.eta import estimate
from dray_rucio.facts import FileFacts, RequestFacts, RseFacts, RuleFacts, SourceFacts

NOW = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
HOST = "dray://b.example:4735"
SOURCE = RseFacts("A", "dray://a.example/data", None, False, True, True, False)
DESTINATION = dataclasses.replace(SOURCE, name="B", url="dray://b.example/data")
REQUEST = RequestFacts("r1", "r1", "SUBMITTED", True, NOW, 1, None, "dray", HOST)
FILE = FileFacts("s:f", DESTINATION, False, 10, (SourceFacts(SOURCE, True, None),), REQUEST)
RULE = RuleFacts("rule1", "s:d", "B", "prod", "REPLICATING", None, 3, 1, 1, 1, (FILE,))


def of_transfer(transfer: Transfer, verdict: AdmissionVerdict | None = None) -> list[Cause]:
    """Return the causes of a submitted file."""
    offers = {} if verdict is None else {"r1": verdict}
    return causes_of_file(FILE, RULE, Answers({}, {"r1": transfer}, offers))


def of_queued(**changes: object) -> list[str]:
    """Return the codes of a queued file with other facts."""
    queued = dataclasses.replace(REQUEST, state="QUEUED", tool=None, host=None)
    file = dataclasses.replace(FILE, request=queued, **changes)  # type: ignore[arg-type]
    return [cause.code for cause in causes_of_file(file, RULE, Answers({}, {}, {}))]


def test_a_moving_transfer_has_no_cause() -> None:
    assert of_transfer(Transfer("r1", "active")) == []


def test_a_refused_deadline_has_the_counter_offer() -> None:
    transfer = Transfer("r1", "active", request={"deadline": "2026-11-27T13:00:00Z"})
    later = NOW + timedelta(hours=2)
    (cause,) = of_transfer(
        transfer, AdmissionVerdict(earliest_finish=later, reasons=("the rate is promised",))
    )
    assert cause.code == "admission_refused"
    assert cause.text.endswith("is not promised: the rate is promised")
    assert cause.remedy.endswith("the earliest possible one is 2026-11-27T14:00:00+00:00")
    assert of_transfer(dataclasses.replace(transfer, promised=True)) == []


def test_one_usable_source_is_enough() -> None:
    usable, bare = FILE.sources[0], dataclasses.replace(SOURCE, url=None)
    others = (
        SourceFacts(bare, True, None),
        SourceFacts(SOURCE, False, None),
        SourceFacts(SOURCE, True, "no scheme"),
        SourceFacts(dataclasses.replace(SOURCE, can_read=False), True, None),
    )
    named = ["no_dray_url", "no_distance", "protocol_mismatch", "rse_blocked"]
    assert of_queued(sources=others) == named
    assert of_queued(sources=(*others, usable)) == ["not_picked_up"]
    assert of_queued(sources=()) == ["source_missing"]


def test_a_blocked_destination_and_a_wait_for_tape_are_named() -> None:
    blocked = dataclasses.replace(DESTINATION, can_write=False)
    assert of_queued(destination=blocked) == ["rse_blocked"]
    waits = dataclasses.replace(DESTINATION, waits_for_tape=True)
    assert of_queued(destination=waits) == ["tape"]
    malformed = dataclasses.replace(DESTINATION, url="http://b")
    assert of_queued(destination=malformed) == ["no_dray_url"]


@pytest.mark.parametrize(
    ("state", "error", "code"),
    [
        ("STUCK", "There is not enough quota left to fulfil the operation.", "quota"),
        ("STUCK", "RSEOverQuota: B is full", "quota"),
        ("SUSPENDED", None, "suspended"),
        ("WAITING_APPROVAL", None, "not_approved"),
    ],
)
def test_causes_of_the_whole_rule(state: str, error: str | None, code: str) -> None:
    (cause,) = causes_of_rule(dataclasses.replace(RULE, state=state, error=error))
    assert cause.code == code
    assert cause.remedy


def test_the_causes_of_a_globus_task() -> None:
    collection = "globus://6c54cade-bde5-45c1-bdea-f4bd71dba2cc"
    asked = dataclasses.replace(REQUEST, transfer="t1", host=collection)
    file = dataclasses.replace(FILE, request=asked)

    def code(transfer: Transfer | None) -> list[str]:
        answers = Answers({}, {"t1": transfer}, {})
        return [each.code for each in causes_of_file(file, RULE, answers)]

    assert code(None) == ["transfer_unknown"]
    assert code(Transfer("t1", "active")) == []
    assert code(Transfer("t1", "queued")) == ["transfer_waits"]
    assert code(Transfer("t1", "done")) == ["not_polled"]


def test_the_cause_of_a_tape_has_a_remedy_that_helps() -> None:
    tape = dataclasses.replace(SOURCE, is_tape=True, is_recalled=False, collection="c1")
    by_globus = dataclasses.replace(DESTINATION, url=None, collection="c2")
    remedies = []
    for destination in (DESTINATION, by_globus):
        sources = (SourceFacts(tape, True, None),)
        queued = dataclasses.replace(REQUEST, state="QUEUED", tool=None, host=None)
        file = dataclasses.replace(FILE, request=queued, destination=destination, sources=sources)
        (cause,) = causes_of_file(file, RULE, Answers({}, {}, {}))
        assert cause.code == "tape"
        remedies.append(cause.remedy.rpartition("or ")[2])
    assert remedies == ["set dray_recall = True", "set dray_url of both RSEs"]


def test_two_collections_need_no_endpoint() -> None:
    bare = dataclasses.replace(SOURCE, url=None, collection="c1")
    target = dataclasses.replace(DESTINATION, url=None, collection="c2")
    queued = dataclasses.replace(REQUEST, state="QUEUED", tool=None, host=None)

    def codes(source: RseFacts) -> list[str]:
        sources = (SourceFacts(source, True, None),)
        file = dataclasses.replace(FILE, destination=target, sources=sources, request=queued)
        return [each.code for each in causes_of_file(file, RULE, Answers({}, {}, {}))]

    assert codes(bare) == ["not_picked_up"]
    assert codes(dataclasses.replace(bare, url=SOURCE.url, collection=None)) == ["no_dray_url"]


def test_a_rule_without_a_fault_has_no_cause_of_its_own() -> None:
    assert causes_of_rule(RULE) == []


def test_the_end_of_a_rule_is_the_end_of_its_last_file() -> None:
    requests = [dataclasses.replace(REQUEST, id=f"r{at}", transfer=f"r{at}") for at in range(3)]
    files = tuple(dataclasses.replace(FILE, request=each) for each in requests)
    transfers: dict[str, Transfer | None] = {
        f"r{at}": Transfer(f"r{at}", "active", eta=NOW + timedelta(hours=at)) for at in range(3)
    }
    rule = dataclasses.replace(RULE, files=files, missing=3)
    found = estimate(rule, Answers({}, transfers, {}))
    assert (found.end, found.known, found.is_complete) == (NOW + timedelta(hours=2), 3, True)
    transfers["r1"] = Transfer("r1", "queued")
    found = estimate(dataclasses.replace(rule, missing=5), Answers({}, transfers, {}))
    assert (found.known, found.is_complete) == (2, False)
    assert found.story.splitlines() == [
        "not complete before: 2026-11-27T14:00:00+00:00 (for 2 files)",
        "unknown for 1 files: their transfers are queued at the endpoint and move no data yet",
        "unknown for 2 files: they were not examined (--files)",
    ]


def test_the_manual_names_all_causes() -> None:
    page = Path(__file__).parents[3] / "docs/how-to/rucio.md"
    part = page.read_text(encoding="utf-8").split("## Find out why nothing moves")[1]
    named = set(re.findall(r"^\| `(\w+)` \|", part.split("\n## ")[0], re.MULTILINE))
    assert named == set(CODES)
