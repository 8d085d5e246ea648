"""The reasons why a file of a rule does not move. Pure functions.

Rucio records most of these causes only in the logs of its daemons, or not at all: the request stays
``QUEUED``, or ends as ``NO_SOURCES``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dray_rucio.globus_places import is_globus
from dray_rucio.places import NoPlaceError, site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dray import DrayError
    from dray.client import AdmissionVerdict, Transfer
    from dray_rucio.facts import FileFacts, RequestFacts, RseFacts, RuleFacts, SourceFacts

__all__ = ["CODES", "Answers", "Cause", "causes_of_file", "causes_of_rule", "host_of", "is_refused"]

CODES = (
    "admission_refused",
    "endpoint_refuses",
    "endpoint_unreachable",
    "globus_inactive",
    "globus_login",
    "globus_paused",
    "globus_retries",
    "globus_unreachable",
    "last_try_failed",
    "no_distance",
    "no_dray_url",
    "not_approved",
    "not_picked_up",
    "not_polled",
    "other_tool",
    "protocol_mismatch",
    "quota",
    "rse_blocked",
    "rule_error",
    "source_missing",
    "submitter_not_running",
    "suspended",
    "tape",
    "throttled",
    "transfer_unknown",
    "transfer_waits",
    "waits_for_repair",
)
"""All values of :attr:`Cause.code`."""
_QUOTA = ("InsufficientAccountLimit", "RSEOverQuota", "quota")


class Cause(NamedTuple):
    """A reason why a file does not move, and its remedy.

    :param code: a word of :data:`CODES`.
    :param where: the RSE, daemon or transfer.
    """

    code: str
    where: str
    text: str
    remedy: str


class Answers(NamedTuple):
    """The answers of the endpoints.

    :param errors: error of the call to each endpoint that did not answer as it should.
    :param transfers: transfers by id. ``None`` for a transfer that its endpoint does not know.
    :param offers: for each transfer whose deadline is not promised, the decision that the endpoint
        would make now.
    """

    errors: Mapping[str, DrayError]
    transfers: Mapping[str, Transfer | None]
    offers: Mapping[str, AdmissionVerdict]


def host_of(rse: RseFacts) -> str | None:
    """Return the external host of an RSE's endpoint. ``None`` if its attributes name none."""
    try:
        return None if rse.url is None else site(rse.name, rse.url, rse.pin).host
    except NoPlaceError:
        return None


def causes_of_rule(rule: RuleFacts) -> list[Cause]:
    """Return the causes that concern the rule as a whole."""
    where = f"rule {rule.id}"
    if rule.state == "SUSPENDED":
        remedy = f"find the reason, then: rucio rule update {rule.id} --stuck"
        return [Cause("suspended", where, "the rule is suspended", remedy)]
    if rule.state == "WAITING_APPROVAL":
        text = "the rule waits for the approval of an administrator"
        # The program `rucio` has no command for this.
        remedy = f"in Python: rucio.client.Client().approve_replication_rule({rule.id!r})"
        return [Cause("not_approved", where, text, remedy)]
    error = rule.error or ""
    if any(word in error for word in _QUOTA):
        remedy = (
            f"raise the limit of account {rule.account} at {rule.rse_expression}, or delete rules "
            "of the account; Rucio then evaluates the rule again"
        )
        return [Cause("quota", where, error, remedy)]
    if error and not rule.missing:
        return [Cause("rule_error", where, error, "correct the cause; Rucio then repairs the rule")]
    return []


def causes_of_file(file: FileFacts, rule: RuleFacts, answers: Answers) -> list[Cause]:
    """Return the causes for a file. An empty list means that the file moves."""
    request = file.request
    if request is not None and request.is_live:
        if request.tool not in (None, "dray"):
            text = f"request {request.id} belongs to the transfertool {request.tool}"
            remedy = f"look for the request at {request.host or request.tool}"
            return [Cause("other_tool", file.destination.name, text, remedy)]
        if request.state == "SUBMITTED" and is_globus(request.host):
            return _of_task(request, answers)
        if request.state == "SUBMITTED":
            return _of_submitted(request, answers)
        if request.state in ("WAITING", "PREPARING"):
            daemon = "throttler" if request.state == "WAITING" else "preparer"
            text = f"request {request.id} waits for Rucio's {daemon}"
            remedy = f"check that rucio-conveyor-{daemon} runs, and the transfer limits of the RSEs"
            return [Cause("throttled", file.destination.name, text, remedy)]
    causes = _of_destination(file, answers) + _of_sources(file, answers)
    if request is not None and request.error:
        causes.append(_of_last_try(file, request))
    if file.is_stuck:
        causes.append(_of_stuck(file, rule))
    elif not causes:
        causes.append(_of_queue(file, rule))
    return causes


def _of_rse(rse: RseFacts, answers: Answers) -> Cause | None:
    """Return the cause at an RSE that concerns every file there."""
    if rse.url is None:
        remedy = f"rucio rse attribute set {rse.name} --key dray_url --value dray://HOST/ROOT"
        if rse.collection is not None:
            remedy += ", or give the other RSE a globus_endpoint_id"
        return Cause("no_dray_url", rse.name, f"RSE {rse.name} has no attribute dray_url", remedy)
    try:
        host = site(rse.name, rse.url, rse.pin).host
    except NoPlaceError as error:
        return Cause("no_dray_url", rse.name, str(error), "correct the attribute of the RSE")
    error_of = answers.errors.get(host)
    return None if error_of is None else _of_error(rse.name, host, error_of)


def _of_error(where: str, host: str, error: DrayError) -> Cause:
    address = host.partition("#")[0].removeprefix("dray://")
    if error.kind in ("unreachable", "timed_out"):
        remedy = "start the endpoint, and check the address in dray_url and the firewall"
        text = f"the endpoint {address} of {where} does not answer: {error.message}"
        return Cause("endpoint_unreachable", where, text, remedy)
    remedy = "check the token in token_file, the certificate and dray_pin"
    text = f"the endpoint {address} of {where} cannot be called: {error.message}"
    return Cause("endpoint_refuses", where, text, remedy)


def _of_destination(file: FileFacts, answers: Answers) -> list[Cause]:
    rse = file.destination
    if not rse.can_write:
        text = f"RSE {rse.name} is not available for writing"
        return [
            Cause("rse_blocked", rse.name, text, f"set the availability of {rse.name} for writing")
        ]
    if rse.waits_for_tape:
        text = f"Rucio must wait until files are on tape at {rse.name} (archive_timeout)"
        return [Cause("tape", rse.name, text, "let FTS move files to this RSE")]
    if any(_is_by_globus(source.rse, rse) for source in file.sources):
        return []
    cause = _of_rse(rse, answers)
    return [] if cause is None else [cause]


def _of_sources(file: FileFacts, answers: Answers) -> list[Cause]:
    if not file.sources:
        text = f"{file.did} has no available replica"
        remedy = "upload the file again, or declare the file as lost"
        return [Cause("source_missing", file.destination.name, text, remedy)]
    causes = [_of_source(source, file.destination, answers) for source in file.sources]
    # One usable source is enough.
    return [] if None in causes else [cause for cause in causes if cause is not None]


def _is_by_globus(source: RseFacts, destination: RseFacts) -> bool:
    """Return true if Globus moves the files between two RSEs. Endpoints come first."""
    by_endpoints = source.url is not None and destination.url is not None
    by_globus = source.collection is not None and destination.collection is not None
    return by_globus and not by_endpoints


def _of_source(source: SourceFacts, target: RseFacts, answers: Answers) -> Cause | None:
    name, destination = source.rse.name, target.name
    if not source.rse.can_read:
        text = f"source RSE {name} is not available for reading"
        return Cause("rse_blocked", name, text, f"set the availability of {name} for reading")
    if source.rse.is_tape and _is_by_globus(source.rse, target):
        text = f"the replica at {name} is on tape, and dray does not recall files for Globus"
        return Cause("tape", name, text, "let FTS move these files, or set dray_url of both RSEs")
    if source.rse.is_tape and not source.rse.is_recalled:
        text = f"the replica at {name} is on tape, and dray does not recall files of this RSE"
        return Cause("tape", name, text, "let FTS move these files, or set dray_recall = True")
    if not source.has_distance:
        text = f"Rucio has no distance from {name} to {destination}"
        remedy = f"rucio rse distance set {name} {destination} --distance 1"
        return Cause("no_distance", name, text, remedy)
    if source.mismatch is not None:
        text = f"the protocols of {name} and {destination} do not match: {source.mismatch}"
        remedy = (
            "give both RSEs a protocol of [conveyor] scheme with third_party_copy_read and "
            "third_party_copy_write above 0 in the domain wan"
        )
        return Cause("protocol_mismatch", name, text, remedy)
    return None if _is_by_globus(source.rse, target) else _of_rse(source.rse, answers)


def _of_last_try(file: FileFacts, request: RequestFacts) -> Cause:
    where = file.destination.name
    error = request.error or ""
    if "dray_globus login" in error:
        # Each error of Globus about a missing login or consent has this command in its remedy.
        text = f"the login at Globus or a consent is missing: {error}"
        return Cause("globus_login", where, text, "log in as the error describes")
    if "not_found" in error:
        text = f"a replica of {file.did} is missing at its RSE: {error}"
        remedy = "declare the replica as bad, so that Rucio uses another replica"
        return Cause("source_missing", where, text, remedy)
    text = f"the last of {request.tries} tries failed: {error}"
    return Cause("last_try_failed", where, text, "correct the cause that the error names")


def _of_stuck(file: FileFacts, rule: RuleFacts) -> Cause:
    text = f"Rucio makes no further try for {file.did} until its judge-repairer repairs the rule"
    remedy = (
        "check that rucio-judge-repairer runs; to repair the rule soon: rucio rule update "
        f"{rule.id} --boost-rule"
    )
    return Cause("waits_for_repair", f"rule {rule.id}", text, remedy)


def _of_queue(file: FileFacts, rule: RuleFacts) -> Cause:
    request = file.request
    if rule.submitters == 0:
        text = "no rucio-conveyor-submitter has had a heartbeat for 15 minutes"
        remedy = "start rucio-conveyor-submitter with transfertool = dray"
        return Cause("submitter_not_running", "conveyor-submitter", text, remedy)
    since = "" if request is None else f" since {request.created_at.isoformat(timespec='seconds')}"
    text = f"no submitter has taken the request{since}, and no cause is known"
    remedy = (
        "wait for a cycle of the submitters (ten minutes); then check their transfertool, their "
        "activities and their logs"
    )
    return Cause("not_picked_up", "conveyor-submitter", text, remedy)


def _of_submitted(request: RequestFacts, answers: Answers) -> list[Cause]:
    where = f"transfer {request.transfer}"
    host = request.host or ""
    error = answers.errors.get(host)
    if error is not None:
        return [_of_error(where, host, error)]
    transfer = answers.transfers.get(request.transfer)
    if transfer is None:
        text = "the endpoint does not know the transfer"
        return [Cause("transfer_unknown", where, text, "wait for the poller; Rucio tries again")]
    if transfer.is_terminal:
        text = f"the transfer is {transfer.state}, and no poller has requested its state yet"
        remedy = "check that rucio-conveyor-poller runs with transfertool = dray"
        return [Cause("not_polled", where, text, remedy)]
    causes = []
    refused = _of_admission(where, transfer, answers.offers.get(transfer.id))
    if refused is not None:
        causes.append(refused)
    waits = _of_waiting(where, transfer)
    if waits is not None:
        causes.append(waits)
    return causes


def _of_task(request: RequestFacts, answers: Answers) -> list[Cause]:
    """Return the cause for which a Globus task does not move data."""
    where = f"Globus task {request.transfer}"
    failed = answers.errors.get(request.host or "")
    if failed is not None:
        code = "globus_login" if failed.kind == "unauthorized" else "globus_unreachable"
        return [Cause(code, where, failed.message, failed.remedy or "see status.globus.org")]
    task = answers.transfers.get(request.transfer)
    if task is None:
        text = "Globus does not know the task"
        return [Cause("transfer_unknown", where, text, "wait for the poller; Rucio tries again")]
    if task.is_terminal:
        text = f"the task is {task.state}, and no poller has requested its state yet"
        remedy = "check that rucio-conveyor-poller runs with transfertool = dray"
        return [Cause("not_polled", where, text, remedy)]
    if task.state == "queued":
        text = "the task waits in the queue of Globus until other tasks of the client end"
        return [Cause("transfer_waits", where, text, "wait; Globus runs few tasks concurrently")]
    if task.error is None:
        return []
    codes = {"unauthorized": "globus_inactive", "unattended": "globus_paused"}
    code = codes.get(task.error.kind, "globus_retries")
    return [Cause(code, where, task.error.message, task.error.remedy)]


def is_refused(transfer: Transfer | None) -> bool:
    """Return true if the endpoint has not promised the deadline of a transfer."""
    if transfer is None or transfer.is_terminal or transfer.promised:
        return False
    return transfer.request.get("deadline") is not None


def _of_admission(where: str, transfer: Transfer, offer: AdmissionVerdict | None) -> Cause | None:
    """Return the refusal of the rule's deadline, with the counter-offer of the endpoint."""
    if not is_refused(transfer):
        return None
    reasons = offer.reasons if offer is not None else ()
    said = "; ".join(reasons or transfer.notices) or "the endpoint gave no reason"
    text = f"the deadline {transfer.request['deadline']} is not promised: {said}"
    remedy = "set a later deadline in the meta of the rule"
    if offer is not None and offer.earliest_finish is not None:
        earliest = offer.earliest_finish.isoformat(timespec="seconds")
        remedy += f"; the earliest possible one is {earliest}"
    return Cause("admission_refused", where, text, remedy)


def _of_waiting(where: str, transfer: Transfer) -> Cause | None:
    if transfer.state == "paused":
        text = "a user has paused the transfer"
        remedy = f"resume the transfer at the endpoint: POST /v1/transfers/{transfer.id}/resume"
    elif transfer.state == "waiting":
        why = transfer.error.message if transfer.error is not None else "its last try failed"
        at = transfer.next_try_at
        when = f" at {at.isoformat(timespec='seconds')}" if at is not None else ""
        text = f"the endpoint tries again{when}: {why}"
        remedy = "correct the cause that the message names"
    elif transfer.state == "queued":
        text = "the transfer waits in the endpoint's queue until other transfers end"
        remedy = "raise the priority of the rule, or limits.transfers_active of the endpoint"
    elif transfer.held:
        text = "the endpoint holds the transfer, because other transfers precede it"
        remedy = "raise the priority of the rule"
    elif transfer.silent_seconds is not None:
        text = f"the transfer has moved no data for {transfer.silent_seconds} s"
        remedy = f"look at the bottleneck: dray show {transfer.id}"
    else:
        return None
    return Cause("transfer_waits", where, text, remedy)
