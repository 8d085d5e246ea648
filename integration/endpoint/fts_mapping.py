"""Map FTS jobs, as Rucio's transfertool writes and reads them, to requests of dray and back.

All functions are pure. Each file of a job becomes one request. The id of the request is the file's
``request_id``, so a repeated submission attaches to the transfer of the first submission. Fields of
a job without an equivalent in a request are stored in labels, and are mapped back unchanged. Tokens
are never stored. They are passed separately from the request, to get the tickets.

The tables of this module define the treatment of each field. An unknown field is refused: if it was
dropped silently, the loss would be found too late.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = [
    "FILE",
    "METADATA",
    "PARAMS",
    "Mapped",
    "Prefixes",
    "Rule",
    "Unmapped",
    "job_answer",
    "job_of",
    "requests_of",
]

Json: TypeAlias = Any
Words: TypeAlias = Mapping[str, Json]
How = Literal["field", "label", "secret", "not needed"]

#: Limits of the API: number of labels of a request, and bytes of one label.
LABELS_MAX = 32
LABEL_BYTES_MAX = 256
REST = "fts.rest."
JOB = "fts.job"

EXISTS = "Destination file exists and overwrite is not enabled"
"""Text that Rucio searches for in a reason (FTS_FILE_EXISTS_ERROR_MSG_LEGACY of its fts3.py)."""


class Unmapped(ValueError):
    """A job has a part without a rule."""


class Rule(NamedTuple):
    """Treatment of one field.

    :param how: ``field``: the value determines a field of the request. ``label``: the value is
        stored for the answer and for readers. ``secret``: the value is passed separately from the
        request. ``not needed``: the value has no meaning here, and is stored as a label too.
    :param to: the field of the request, the use of the secret, or the reason for the treatment.
    """

    how: How
    to: str


FILE: dict[str, Rule] = {
    "sources": Rule("field", "sources[0].url, then replicas[].url in their order"),
    "destinations": Rule("field", "destination.url; there is one"),
    "filesize": Rule("field", "content.size"),
    "checksum": Rule("field", "content.checksum (adler32, crc32c); md5: label"),
    "activity": Rule("field", "activity"),
    "scitag": Rule("field", "scitag: experiment << 6 | activity"),
    "metadata": Rule("label", "the caller's own; request_id becomes id"),
    "selection_strategy": Rule("label", "replicas are tried in the order given"),
    "source_tokens": Rule("secret", "mint the ticket at the source"),
    "destination_tokens": Rule("secret", "submit at the destination"),
    "staging_metadata": Rule("label", "for the tape system, which the caller drives"),
    "archive_metadata": Rule("label", "for the tape system, which the caller drives"),
}
"""Fields of ``files[]``."""

METADATA: dict[str, Rule] = {
    "request_id": Rule("field", "id"),
    "adler32": Rule("field", "content.checksum, where the file's own is none of ours"),
    **{
        name: Rule("label", "Rucio's own, read back in the answer")
        for name in (
            "scope",
            "name",
            "activity",
            "request_type",
            "src_type",
            "dst_type",
            "src_rse",
            "dst_rse",
            "src_rse_id",
            "dest_rse_id",
            "filesize",
            "md5",
            "vo",
        )
    },
}
"""Fields of ``files[].metadata`` that Rucio writes; additions of its tape plug-ins are stored too.
"""

PARAMS: dict[str, Rule] = {
    "verify_checksum": Rule("field", "content.checksum unless none; verify for target and both"),
    "overwrite": Rule("field", "overwrite: always, else never"),
    "overwrite_hop": Rule("field", "overwrite: always, of all hops but the last"),
    "priority": Rule("field", "priority; 1 to 5 lie within 0 to 9, and 3 is the default of both"),
    "retry": Rule("field", "retry.tries; -1 (none) is 0, 0 (the server's) is left out"),
    "retry_delay": Rule("field", "retry.interval_seconds"),
    "nostreams": Rule("field", "streams, 1 to 64"),
    "sid": Rule("label", "the first file's request_id, which is its id anyway"),
    "id_generator": Rule("label", "an id that the caller chose is what it asks for"),
    "multihop": Rule("label", "one request for each hop, submitted when the one before is done"),
    "account": Rule("label", "the owner comes from the credential"),
    "job_metadata": Rule("label", "the caller's own, read back in the answer"),
    "copy_pin_lifetime": Rule("label", "of tape: pin_seconds of a staging request"),
    "bring_online": Rule("label", "of tape: the caller stages before it submits"),
    "archive_timeout": Rule("label", "of tape: the caller looks whether it is archived"),
    "dst_file_report": Rule("label", "asks for dst_file in the answer's file_metadata"),
    "overwrite_when_only_on_disk": Rule("label", "of tape; overwrite is false beside it"),
    "max_time_in_queue": Rule("label", "hours; the caller cancels what is still queued then"),
    "timeout": Rule("label", "seconds; the caller cancels; stalls end by themselves"),
    "strict_copy": Rule("not needed", "there are no checks of a storage system's own to leave out"),
    "ipv4": Rule("not needed", "the names of endpoints decide"),
    "ipv6": Rule("not needed", "the names of endpoints decide"),
    "s3alternate": Rule("not needed", "no S3"),
    "spacetoken": Rule("not needed", "no SRM"),
    "source_spacetoken": Rule("not needed", "no SRM"),
    "reuse": Rule("not needed", "connections are a session's own"),
    "buffer_size": Rule("not needed", "the system sizes its buffers"),
}
"""Fields of ``params``."""

STATES = {
    "queued": "SUBMITTED",
    "waiting": "SUBMITTED",
    "paused": "SUBMITTED",
    "active": "ACTIVE",
    "done": "FINISHED",
    "incomplete": "FAILED",
    "failed": "FAILED",
    "cancelled": "CANCELED",
}
"""FTS states of a transfer of one file; Rucio has no pause."""


@dataclass(frozen=True)
class Prefixes:
    """Maps each URL prefix of a storage system to one root of an endpoint, and back.

    :param pairs: PFN prefix and ``dray://HOST/ROOT``, longest prefix first.
    """

    pairs: Sequence[tuple[str, str]]

    def place(self, pfn: str) -> str:
        """Return the place of a PFN."""
        for prefix, place in self.pairs:
            if pfn.startswith(prefix):
                return place + pfn.removeprefix(prefix).replace("%", "%25")
        raise Unmapped(f"no endpoint serves {pfn}")

    def pfn(self, place: str) -> str:
        """Return the PFN of a place."""
        for prefix, known in self.pairs:
            if place.startswith(known):
                return prefix + place.removeprefix(known).replace("%25", "%")
        raise Unmapped(f"no storage is behind {place}")


@dataclass(frozen=True)
class Mapped:
    """A request, and the secrets that must not be written into it.

    :param request: REQUEST of the API.
    :param secrets: tokens that the FTS job has for the file.
    :param hop: index of the hop, and number of all hops. Hops are submitted one after the other.
    """

    request: dict[str, Json]
    secrets: dict[str, Json] = field(default_factory=dict, repr=False)
    hop: tuple[int, int] = (0, 1)


def requests_of(job: Words, job_id: str, prefixes: Prefixes) -> list[Mapped]:
    """Return the requests for a job, which is given as it is posted to ``/jobs``.

    :raises Unmapped: for an unknown field, or values that do not fit into labels.
    """
    files, params = list(job["files"]), dict(job["params"])
    _known("job", job, {"files", "params"})
    _known("params", params, PARAMS)
    hops = len(files) if params.get("multihop") else 1
    mapped = []
    for index, file in enumerate(files):
        _known("file", file, FILE)
        hop = (index, hops) if hops > 1 else (0, 1)
        mapped.append(_request(file, params, job_id, hop, prefixes))
    return mapped


def job_of(mapped: Sequence[Mapped], prefixes: Prefixes) -> dict[str, Json]:
    """Return the FTS job from which these requests were mapped."""
    files = []
    params: dict[str, Json] = {}
    for each in mapped:
        request, rest = each.request, _rest(each.request["labels"])
        params = rest["params"]
        file = {
            "sources": [prefixes.pfn(source["url"]) for source in _origins(request)],
            "destinations": [prefixes.pfn(request["destination"]["url"])],
            **_fields_back(request),
            **rest["file"],
            **each.secrets,
        }
        file["metadata"] = {**rest["file"]["metadata"], "request_id": request["id"]}
        files.append({name: file[name] for name in rest["order"]})
    return {"files": files, "params": params}


def job_answer(
    job_id: str,
    transfers: Sequence[Words],
    prefixes: Prefixes,
    destinations: Mapping[str, Words] | None = None,
) -> dict[str, Json]:
    """Return the answer that Rucio's ``bulk_query`` reads for a job.

    :param transfers: the transfers of the job's requests, in the JSON form of the API.
    :param destinations: ``size`` and ``adler32`` of the file at the destination of a transfer, by
        the transfer's id. The answer contains them as ``dst_file``. Rucio uses ``dst_file`` to
        decide if an existing file is correct.
    """
    params = _rest(transfers[0]["request"]["labels"])["params"]
    files = []
    for transfer in transfers:
        files += _file_answers(transfer, prefixes, (destinations or {}).get(transfer["id"]))
    return {
        "job_id": job_id,
        "http_status": "200 Ok",
        "job_state": _job_state({_state(transfer) for transfer in transfers}),
        "job_type": _job_type(params, transfers),
        "job_metadata": params.get("job_metadata", {}),
        "priority": transfers[0]["request"].get("priority", 3),
        "files": files,
    }


# --- a file of a job ------------------------------------------------------------------------------


def _request(
    file: Words, params: Words, job_id: str, hop: tuple[int, int], prefixes: Prefixes
) -> Mapped:
    if len(file["destinations"]) != 1:
        raise Unmapped("a file with several destinations")
    id = (file.get("metadata") or {}).get("request_id")
    if not id:
        raise Unmapped("a file without request_id")
    request: dict[str, Json] = {
        "id": id,
        "sources": [{"url": prefixes.place(pfn)} for pfn in file["sources"][:1]],
        "replicas": [{"url": prefixes.place(pfn)} for pfn in file["sources"][1:]],
        "destination": {"url": prefixes.place(file["destinations"][0])},
        "overwrite": "always" if _may_overwrite(params, hop) else "never",
        "checksum_attributes": True,
        "content": _content(file, params),
        "activity": file.get("activity"),
        "verify": params.get("verify_checksum") in ("target", "both"),
        **_pace(params),
        "labels": _labels(file, params, job_id, hop),
    }
    if file.get("scitag") is not None:
        request["scitag"] = {"experiment": file["scitag"] >> 6, "activity": file["scitag"] & 63}
    secrets = {name: value for name, value in file.items() if FILE[name].how == "secret"}
    given = {name: value for name, value in request.items() if value not in (None, {}, [])}
    return Mapped(given, secrets, hop)


def _origins(request: Words) -> list[Words]:
    return [*request["sources"], *request.get("replicas", ())]


def _fields_back(request: Words) -> dict[str, Json]:
    """Return the fields of an FTS file that correspond to fields of the request."""
    words: dict[str, Json] = {}
    if "size" in request.get("content", {}):
        words["filesize"] = request["content"]["size"]
    if "activity" in request:
        words["activity"] = request["activity"]
    if "scitag" in request:
        scitag = request["scitag"]
        words["scitag"] = scitag["experiment"] << 6 | scitag["activity"]
    return words


def _may_overwrite(params: Words, hop: tuple[int, int]) -> bool:
    is_last = hop[0] == hop[1] - 1
    return bool(params.get("overwrite") or (params.get("overwrite_hop") and not is_last))


def _content(file: Words, params: Words) -> dict[str, Json]:
    content: dict[str, Json] = {}
    if file.get("filesize") is not None:
        content["size"] = file["filesize"]
    if params.get("verify_checksum", "both") == "none":
        return content
    given = _checksum(file.get("checksum"))
    known = (file.get("metadata") or {}).get("adler32")
    if given is None and known:
        # The checksum strategy of the job chose md5, or a checksum that one end cannot compute. Use
        # the adler32 that Rucio knows.
        given = f"adler32:{known}"
    if given is not None:
        content["checksum"] = given
    return content


def _checksum(text: str | None) -> str | None:
    algorithm, _, value = (text or "").partition(":")
    return f"{algorithm.lower()}:{value}" if algorithm.lower() in ("adler32", "crc32c") else None


def _pace(params: Words) -> dict[str, Json]:
    words: dict[str, Json] = {"priority": params.get("priority")}
    retry = {}
    if params.get("retry"):
        retry["tries"] = max(0, params["retry"])
    if params.get("retry_delay") is not None:
        retry["interval_seconds"] = params["retry_delay"]
    words["retry"] = retry
    if params.get("nostreams") is not None:
        words["streams"] = min(64, max(1, params["nostreams"]))
    return words


# --- labels: values without a field ---------------------------------------------------------------


def _labels(file: Words, params: Words, job_id: str, hop: tuple[int, int]) -> dict[str, str]:
    said = {"sources", "destinations", "filesize", "activity", "scitag"}
    kept = {
        name: value
        for name, value in file.items()
        if FILE[name].how != "secret" and (name not in said or value is None)
    }
    metadata = file.get("metadata") or {}
    kept["metadata"] = {name: each for name, each in metadata.items() if name != "request_id"}
    rest = {"file": kept, "params": dict(params), "order": list(file), "hop": list(hop)}
    # ASCII, so that no piece cuts a character in two.
    text = json.dumps(rest, separators=(",", ":"))
    pieces = [text[at : at + LABEL_BYTES_MAX] for at in range(0, len(text), LABEL_BYTES_MAX)]
    labels = {JOB: job_id, **{f"{REST}{at:02}": piece for at, piece in enumerate(pieces)}}
    if len(labels) > LABELS_MAX:
        raise Unmapped(f"{len(text)} bytes do not fit into {LABELS_MAX} labels")
    return labels


def _rest(labels: Mapping[str, str]) -> dict[str, Json]:
    pieces = [labels[name] for name in sorted(labels) if name.startswith(REST)]
    rest: dict[str, Json] = json.loads("".join(pieces))
    return rest


def _known(place: str, words: Words, names: Iterable[str]) -> None:
    unknown = sorted(words.keys() - set(names))
    if unknown:
        raise Unmapped(f"{place}: {', '.join(unknown)}")


# --- answers --------------------------------------------------------------------------------------


def _file_answers(transfer: Words, prefixes: Prefixes, stands: Words | None) -> list[Json]:
    """Return one row for each source, used or unused, as FTS does."""
    request = transfer["request"]
    rest = _rest(request["labels"])
    metadata = {**rest["file"]["metadata"], "request_id": transfer["id"]}
    if rest["params"].get("dst_file_report") and stands is not None:
        metadata["dst_file"] = {
            "file_size": stands["size"],
            "checksum_type": "ADLER32",
            "checksum_value": stands["adler32"],
        }
    state, used = _state(transfer), transfer.get("source") or 0
    is_over = state in ("FINISHED", "FAILED", "CANCELED")
    rows = []
    for index, source in enumerate(_origins(request)):
        row = {
            "file_state": state if index == used or not is_over else "NOT_USED",
            "source_surl": prefixes.pfn(source["url"]),
            "dest_surl": prefixes.pfn(request["destination"]["url"]),
            "start_time": _time(transfer.get("started_at")),
            "finish_time": _time(transfer.get("ended_at")),
            # Staging is a separate transfer with times of its own.
            "staging_start": None,
            "staging_finished": None,
            "reason": _reason(transfer) if index == used else None,
            "file_metadata": metadata,
        }
        rows.append(row)
    return rows


def _state(transfer: Words) -> str:
    # FTS fails a file that it may not overwrite. An endpoint keeps the existing file and reports
    # the transfer as done.
    return "FAILED" if _was_skipped(transfer) else STATES[transfer["state"]]


def _was_skipped(transfer: Words) -> bool:
    return transfer["state"] == "done" and bool(transfer.get("files", {}).get("skipped"))


def _reason(transfer: Words) -> str | None:
    if _was_skipped(transfer):
        return EXISTS
    errors = [transfer.get("error"), *(each["error"] for each in transfer.get("failures", ()))]
    found = next((error for error in errors if error), None)
    if found is None:
        return "cancelled" if transfer["state"] == "cancelled" else None
    # The kind comes first, so that programs that count errors by their text see a fixed set.
    return f"{found['end'].upper()} {found['kind']}: {found['message']}"


def _job_state(states: set[str]) -> str:
    if len(states) == 1:
        return next(iter(states))
    if states <= {"FINISHED", "FAILED", "CANCELED"}:
        return "FINISHEDDIRTY" if "FINISHED" in states else "FAILED"
    return "ACTIVE" if states & {"ACTIVE", "FINISHED"} else "SUBMITTED"


def _job_type(params: Words, transfers: Sequence[Words]) -> str:
    if params.get("multihop"):
        return "H"
    return "R" if "replicas" in transfers[0]["request"] else "N"


def _time(text: str | None) -> str | None:
    """Return a time as Rucio parses it: in whole seconds, without a time zone."""
    return None if text is None else text[:19]
