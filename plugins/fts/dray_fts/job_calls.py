"""The calls about jobs and files."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.responses import JSONResponse, Response

from dray import DrayError
from dray_fts.database import JobExistsError
from dray_fts.endpoints import LATER_KINDS
from dray_fts.jobs import BASE_ID, parse
from dray_fts.people import Person, RefusedError
from dray_fts.shapes import FILE_FIELDS, deletion_json, file_json, job_json
from dray_fts.states import JOB_STATES, LIVE
from dray_fts.values import BadJobError, priority_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from starlette.requests import Request

    from dray_fts.changes import Row
    from dray_fts.model import File, Job
    from dray_fts.service import Service

__all__ = [
    "cancel",
    "cancel_all",
    "cancel_files",
    "deletions",
    "field",
    "files",
    "list_files",
    "list_jobs",
    "modify",
    "query",
    "retries",
    "submit",
]

Json: TypeAlias = Any
LIST_USUAL = 100
LIST_MAX = 1000
_UNITS = {"m": 60, "h": 3600, "d": 86400}


def submit(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``POST /jobs``, ``PUT /jobs``: store a job. The driver begins it."""
    del request
    try:
        job = parse(body, service.settings.sites, service.settings.limits)
    except BadJobError as error:
        raise RefusedError(400, str(error)) from error
    if person.token is not None:
        _check_rights(service, person, job)
    if job.seed is None:
        job_id = str(uuid.uuid4())
    else:
        job_id = str(uuid.uuid5(uuid.uuid5(BASE_ID, person.vo), job.seed))
    try:
        service.database.add(job_id, job, hashlib.sha256(body).hexdigest(), person)
    except JobExistsError as error:
        raise RefusedError(409, str(error)) from error
    service.driver.wake()
    return JSONResponse({"job_id": job_id})


def _check_rights(service: Service, person: Person, job: Job) -> None:
    """Ask the endpoints if the tokens permit access to the files of a job.

    The service copies with its own credentials. Without this check, the service would also write a
    file for a token that does not permit this.
    """
    asked: dict[tuple[str, str, str], list[str]] = {}
    for each in job.files:
        source = each.source, each.tokens[0]
        destination = each.destination, each.tokens[1]
        for (place, token), verb in zip(
            (source, source, destination), ("stage", "read", "write"), strict=True
        ):
            if verb in _verbs(each):
                key = place.endpoint, token or person.token or "", verb
                asked.setdefault(key, []).append(place.path)
    for (endpoint, token, verb), paths in asked.items():
        try:
            if verb == "stage":
                service.endpoints.check_stage(endpoint, token, paths)
            else:
                several = dict.fromkeys(paths)
                service.endpoints.check(endpoint, token, several, writes=verb == "write")
        except DrayError as error:
            code = 503 if error.kind in LATER_KINDS else 403
            text = f"the token does not permit to {verb} at endpoint {endpoint}: {error}"
            if code == 503:
                text = (
                    f"cannot check if the token permits to {verb} at endpoint {endpoint}: {error}"
                )
            elif verb == "stage":
                text += "; the token of the source needs the scope storage.stage"
            raise RefusedError(code, text) from error


def _verbs(file: File) -> Collection[str]:
    """Return what the tokens of a file must permit."""
    if file.deletes:
        # A ticket to write needs the right to modify, as a removal does.
        return ("write",)
    if not file.stages:
        return ("read", "write")
    # The right to stage includes the right to read.
    return ("stage",) if file.source == file.destination else ("stage", "write")


def list_jobs(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /jobs``: the live jobs, or the jobs that match filters."""
    del body
    filters = _filters(person, request, "job_state")
    if not filters.keys() - {"owner"}:
        filters["job_state"] = list(LIVE)
    rows = service.database.find("job", filters, _limit(request))
    chosen = _fields(request, "fields")
    found = [job_json(row, service.settings.name) for row in rows]
    return JSONResponse([_only(job, chosen) for job in found])


def list_files(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /files``: the live files, or the files that match filters."""
    del body
    filters = _filters(person, request, "file_state")
    if not filters.keys() - {"owner"}:
        filters["file_state"] = list(LIVE)
    return JSONResponse(
        [file_json(row) for row in service.database.find("file", filters, _limit(request))]
    )


def query(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /jobs/ID[,ID...]``: jobs, with fields of their files if asked."""
    del body
    chosen = _fields(request, "files")
    unknown = (chosen or set()) - FILE_FIELDS
    if unknown:
        raise RefusedError(400, f"the parameter files has the unknown field {sorted(unknown)[0]}")

    def one(row: Row) -> Json:
        job = job_json(row, service.settings.name)
        if chosen is not None:
            listed = service.database.files(row["job_id"])
            job["files"] = [_only(file_json(each), chosen) for each in listed]
        return job

    return _each(service, person, request, one)


def field(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /jobs/ID/FIELD``: one field of a job."""
    del body
    job = job_json(_job(service, person, request.path_params["id"]), service.settings.name)
    name = request.path_params["field"]
    if name not in job:
        raise RefusedError(404, "No such field")
    return JSONResponse(job[name])


def files(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /jobs/ID/files``: the files of a job."""
    del body
    row = _job(service, person, request.path_params["id"])
    chosen = _fields(request, "files")
    return JSONResponse(
        [_only(file_json(each), chosen) for each in service.database.files(row["job_id"])]
    )


def retries(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /jobs/ID/files/FILE/retries``: always empty, because endpoints retry by themselves."""
    del body
    row = _job(service, person, request.path_params["id"])
    known = {str(each["file_id"]) for each in service.database.files(row["job_id"])}
    if request.path_params["file"] not in known:
        raise RefusedError(404, "No file with that id in the job")
    return JSONResponse([])


def deletions(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /jobs/ID/dm``: the files of a deletion job."""
    del body
    row = _job(service, person, request.path_params["id"])
    found = service.database.deletions(row["job_id"])
    return JSONResponse([deletion_json(each) for each in found])


def cancel(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``DELETE /jobs/ID[,ID...]``: cancel jobs."""
    del body

    def one(row: Row) -> Json:
        service.database.cancel(row["job_id"])
        changed = service.database.job(row["job_id"])
        return job_json(changed or row, service.settings.name)

    answer = _each(service, person, request, one)
    service.driver.wake()
    return answer


def cancel_files(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``DELETE /jobs/ID/files/FILE[,FILE...]``: cancel files. The answer has their states."""
    del body
    row = _job(service, person, request.path_params["id"])
    known = {each["file_id"] for each in service.database.files(row["job_id"])}
    asked = []
    for text in request.path_params["file"].split(","):
        if not text.isdecimal() or int(text) not in known:
            raise RefusedError(404, f"No file with the id {text} in the job {row['job_id']}")
        asked.append(int(text))
    service.database.cancel(row["job_id"], asked)
    states = {each["file_id"]: each["file_state"] for each in service.database.files(row["job_id"])}
    service.driver.wake()
    found = [states[file_id] for file_id in asked]
    return JSONResponse(found if len(found) > 1 else found[0])


def cancel_all(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``DELETE /jobs/all``, ``DELETE /jobs/vo/VO``: cancel the live jobs of all users."""
    del body
    if not person.is_administrator:
        raise RefusedError(403, "Not enough permissions: only an administrator may cancel all jobs")
    filters: dict[str, list[str]] = {"job_state": list(LIVE)}
    vo = request.path_params.get("vo")
    if vo is not None:
        filters["vo_name"] = [vo]
    counts = {"affected_files": 0, "affected_dm": 0, "affected_jobs": 0}
    for row in service.database.find("job", filters, 1 << 31):
        counts["affected_files"] += service.database.cancel(row["job_id"])
        counts["affected_jobs"] += 1
    service.driver.wake()
    return JSONResponse(counts if vo is None else {"vo_name": vo, **counts})


def modify(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``POST /jobs/ID[,ID...]``: change the priority of jobs."""
    try:
        found = json.loads(body)
        params = found["params"]
        if found.keys() != {"params"} or params.keys() != {"priority"}:
            raise RefusedError(400, "only the parameter priority of a job can be changed")
        priority = priority_of(params["priority"])
    except (ValueError, LookupError, TypeError, AttributeError, BadJobError) as error:
        text = 'write {"params": {"priority": NUMBER}}'
        if isinstance(error, BadJobError):
            text = str(error)
        raise RefusedError(400, text) from error

    def one(row: Row) -> Json:
        if row["job_state"] in LIVE:
            service.database.prioritise(row["job_id"], priority)
        changed = service.database.job(row["job_id"])
        job = job_json(changed or row, service.settings.name)
        text = f"job {row['job_id']} has priority {job['priority']}"
        # Rucio reads this field in the answer.
        return {**job, "http_message": text}

    answer = _each(service, person, request, one)
    service.driver.wake()
    return answer


def _job(service: Service, person: Person, job_id: str) -> Row:
    """Return a job. A job of another user counts as unknown.

    :raises RefusedError: if the caller may see no such job.
    """
    row = service.database.job(job_id)
    if row is None or (row["owner"] != person.owner and not person.is_administrator):
        raise RefusedError(404, f'No job with the id "{job_id}" has been found')
    return row


def _each(
    service: Service, person: Person, request: Request, call: Callable[[Row], Json]
) -> Response:
    """Answer for one job, or for each job of a list. One error makes the status 207."""
    ids = [each for each in request.path_params["id"].split(",") if each]
    answers, code = [], 200
    for job_id in ids:
        try:
            answer = call(_job(service, person, job_id))
            answers.append({**answer, "http_status": "200 Ok"})
        except RefusedError as error:
            if error.code != 404:
                raise
            status = "404 Not Found"
            missing = {"job_id": job_id, "http_status": status, "http_message": str(error)}
            if len(ids) == 1:
                return JSONResponse({"status": status, "message": str(error), **missing}, 404)
            answers.append(missing)
            code = 207
    return JSONResponse(answers[0] if len(ids) == 1 else answers, code)


def _filters(person: Person, request: Request, state: str) -> dict[str, list[str]]:
    """Read the filters of a list. Only an administrator sees the jobs of others."""
    given = request.query_params
    filters: dict[str, list[str]] = {}
    if not person.is_administrator:
        filters["owner"] = [person.owner]
    user, delegation = given.get("user_dn"), given.get("dlg_id")
    if delegation and user and delegation != person.delegation_id and user == person.dn:
        raise RefusedError(
            400, "The provided DN and delegation id do not correspond to the same user"
        )
    if delegation and delegation != person.delegation_id:
        raise RefusedError(403, "The provided delegation id does not match your delegation id")
    if delegation:
        filters["owner"] = [person.owner]
    for name, column in (
        ("vo_name", "vo_name"),
        ("source_se", "source_se"),
        ("dest_se", "dest_se"),
    ):
        if given.get(name):
            filters[column] = [given[name]]
    if user and state == "job_state":
        filters["user_dn"] = [user]
    if given.get("state_in"):
        # Each state once, because the list reads the jobs of each named state.
        states = list(dict.fromkeys(given["state_in"].split(",")))
        wrong = sorted(set(states) - {*JOB_STATES, "NOT_USED"})
        if wrong:
            raise RefusedError(400, f"state_in has the unknown state {wrong[0]!r}")
        filters[state] = states
    if given.get("time_window"):
        filters["since"] = [str(time.time() - _window(given["time_window"]))]
    return filters


def _window(text: str) -> float:
    """Return the seconds of a window: a number of hours, or ``2d:3h:5m``."""
    try:
        if text.isdecimal():
            return float(text) * 3600
        return float(sum(int(part[:-1]) * _UNITS[part[-1]] for part in text.split(":")))
    except (ValueError, LookupError) as error:
        raise RefusedError(400, f"time_window is {text!r}; write 12, 2d or 1d:12h") from error


def _limit(request: Request) -> int:
    text = request.query_params.get("limit")
    if text is None:
        return LIST_USUAL
    if not text.isdecimal() or not 0 < int(text) <= LIST_MAX:
        raise RefusedError(400, f"limit is {text!r}; write a number from 1 to {LIST_MAX}")
    return int(text)


def _fields(request: Request, name: str) -> set[str] | None:
    text = request.query_params.get(name)
    return {each for each in text.split(",") if each} if text else None


def _only(found: Mapping[str, Json], chosen: set[str] | None) -> dict[str, Json]:
    return {key: value for key, value in found.items() if chosen is None or key in chosen}
