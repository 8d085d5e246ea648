"""Parse a submission of FTS into a job. Pure functions.

Each parameter of FTS is applied, ignored or refused. A parameter is ignored only if it has no
meaning for endpoints; no parameter that would change a copy is ignored.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import uuid
from typing import TYPE_CHECKING, Any

from dray_fts.model import File, Job, Params
from dray_fts.sites import NoPlaceError, Place, SiteMap, storage_of
from dray_fts.values import (
    STAGING_SECONDS_USUAL,
    BadJobError,
    check_metadata,
    number_of,
    priority_of,
    queue_seconds_of,
    seconds_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dray_fts.settings import Limits

__all__ = ["BASE_ID", "parse", "storages"]

BASE_ID = uuid.uuid5(uuid.NAMESPACE_URL, "urn:dray:fts")
"""Root of the ids of jobs with ``id_generator`` ``deterministic``."""
_SOURCES_MAX = 16
_MULTI_WORD = "submit the hops and the alternative sources of a file in separate jobs"
#: Parameters that change nothing at an endpoint (docs/reference/fts.md has the reasons).
_WITHOUT_MEANING = ("account", "disable_cleanup", "s3alternate", "strict_copy", "unmanaged_tokens")
#: Parameters that the service cannot carry out, each with the reason. A value that switches the
#: parameter off is accepted, because clients send all parameters.
_REFUSED = {
    "buffer_size": "endpoints choose the sizes of buffers",
    "credential": "the service has its own credentials for endpoints",
    "destination_spacetoken": "endpoints have no space tokens",
    "fail_nearline": "the service does not know if a file is on disk or on tape",
    "gridftp": "endpoints do not use GridFTP",
    "ipv4": "endpoints choose their addresses",
    "ipv6": "endpoints choose their addresses",
    "overwrite_when_only_on_disk": "the service does not know if a file is on disk or on tape",
    "source_spacetoken": "endpoints have no space tokens",
    "spacetoken": "endpoints have no space tokens",
}
_CARRIED = (
    "archive_timeout",
    "bring_online",
    "copy_pin_lifetime",
    "dst_file_report",
    "id_generator",
    "job_metadata",
    "max_time_in_queue",
    "multihop",
    "nostreams",
    "overwrite",
    "overwrite_hop",
    "overwrite_on_retry",
    "priority",
    "retry",
    "retry_delay",
    "reuse",
    "sid",
    "timeout",
    "verify_checksum",
)
_FILE_KEYS = (
    "activity",
    "archive_metadata",
    "checksum",
    "destination_tokens",
    "destinations",
    "file_metadata",
    "filesize",
    "metadata",
    "scitag",
    "selection_strategy",
    "source_tokens",
    "sources",
    "staging_metadata",
)
_MODES: dict[str | bool | None, str] = {
    **dict.fromkeys((None, False, "", "n", "none"), "none"),
    **dict.fromkeys((True, "b", "both"), "both"),
    **dict.fromkeys(("s", "source"), "source"),
    **dict.fromkeys(("t", "target"), "target"),
}
_CHECKSUM = re.compile(r"(adler32|crc32c):([0-9a-f]{1,8})", re.IGNORECASE)


def parse(body: bytes, sites: SiteMap, limits: Limits) -> Job:
    """Parse the body of a submission.

    :raises BadJobError: with the field and the fault.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadJobError(f"the submission is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadJobError("the submission is not a JSON object")
    unknown = sorted(found.keys() - {"files", "Files", "params", "delete", "staging"})
    if unknown or found.get("staging"):
        raise BadJobError(
            f"the submission has the unknown field {unknown[0] if unknown else 'staging'}"
        )
    params = found.get("params") or {}
    if not isinstance(params, dict):
        raise BadJobError("params is not an object")
    _check_names(params)
    files, surls = found.get("files") or found.get("Files"), found.get("delete")
    if files and surls:
        raise BadJobError("Simultaneous transfer and namespace operations not supported")
    if not surls and (not isinstance(files, list) or not files):
        raise BadJobError("No transfers specified")
    metadata = params.get("job_metadata")
    check_metadata("job_metadata", metadata, limits)
    read = _params(params)
    parsed: list[File] = []
    if surls:
        parsed = _deletions(surls, sites, limits)
    for index, each in enumerate(files or ()):
        parsed.extend(_file(index, each, read, sites, limits))
        _check_count(parsed, limits)
    job_type, parsed = _typed(params, parsed)
    for each in parsed:
        if each.archives and not each.destination.is_tape:
            raise BadJobError(
                f"archive_timeout is set, but the prefix of {each.destination_url} has no tape; "
                "leave archive_timeout out"
            )
    seed = None
    if params.get("id_generator") == "deterministic":
        seed = params.get("sid")
        if not isinstance(seed, str) or not seed:
            raise BadJobError("id_generator is deterministic, but sid is missing")
    return Job(job_type, read, tuple(parsed), metadata, seed)


def _check_count(files: Collection[object], limits: Limits) -> None:
    if len(files) > limits.files:
        raise BadJobError(f"the job has more than {limits.files} files; submit several jobs")


def _check_names(params: Mapping[str, Any]) -> None:
    known = {*_CARRIED, *_WITHOUT_MEANING, *_REFUSED}
    unknown = sorted(params.keys() - known)
    if unknown:
        raise BadJobError(f"the parameter {unknown[0]} is unknown; leave it out")
    for name, why in _REFUSED.items():
        value = params.get(name)
        is_off = value in (None, False, "", 0) or (isinstance(value, int) and value < 0)
        if name == "ipv6" and params.get("ipv4") is None:
            is_off = value in (None, False)
        if not is_off:
            raise BadJobError(f"the parameter {name} is not supported: {why}; leave it out")


def _params(params: Mapping[str, Any]) -> Params:
    mode = params.get("verify_checksum")
    if not isinstance(mode, (str, bool, type(None))) or mode not in _MODES:
        raise BadJobError(f"verify_checksum is {mode!r}; write source, target, both or none")
    flags = ("overwrite", "overwrite_on_retry", "overwrite_hop")
    if sum(bool(params.get(name)) for name in flags) > 1:
        raise BadJobError("Incompatible overwrite flags used at the same time")
    overwrite = "no"
    if params.get("overwrite"):
        overwrite = "yes"
    elif params.get("overwrite_hop"):
        overwrite = "hops"
    # With overwrite_on_retry nothing differs: an endpoint never leaves a partial file under the
    # final name, so a retry has nothing to overwrite.
    streams = number_of(params, "nostreams")
    if streams is not None and not 1 <= streams <= 64:
        raise BadJobError(f"nostreams is {streams}; write a number from 1 to 64")
    timeout = number_of(params, "timeout")
    staging, pin = seconds_of(params, "bring_online"), seconds_of(params, "copy_pin_lifetime")
    if pin is not None and staging is None:
        staging = STAGING_SECONDS_USUAL
    return Params(
        priority=priority_of(params.get("priority")),
        verify_checksum=_MODES[mode],
        overwrite=overwrite,
        retry=number_of(params, "retry") or 0,
        retry_delay=max(number_of(params, "retry_delay") or 0, 0),
        nostreams=streams,
        queue_seconds=queue_seconds_of(params.get("max_time_in_queue")),
        timeout_seconds=float(timeout) if timeout and timeout > 0 else None,
        dst_file_report=bool(params.get("dst_file_report")),
        staging_seconds=staging,
        pin_seconds=pin,
        archive_seconds=seconds_of(params, "archive_timeout"),
    )


def _file(index: int, found: object, params: Params, sites: SiteMap, limits: Limits) -> list[File]:
    where = f"files[{index}]"
    if not isinstance(found, dict):
        raise BadJobError(f"{where} is not an object")
    unknown = sorted(found.keys() - set(_FILE_KEYS))
    if unknown:
        raise BadJobError(f"{where} has the unknown field {unknown[0]}; leave it out")
    if found.get("archive_metadata"):
        raise BadJobError(
            f"{where}: archive_metadata is not supported: endpoints archive without metadata; "
            "leave it out"
        )
    metadata = found.get("metadata", found.get("file_metadata"))
    check_metadata(f"{where}.metadata", metadata, limits)
    sources, source_tokens = _urls(where, found, "source")
    destinations, destination_tokens = _urls(where, found, "destination")
    checksum = found.get("checksum")
    size = number_of(found, "filesize", where)
    staging_metadata = _staging_metadata(where, found, limits)
    made: list[File] = []
    for destination, destination_token in zip(destinations, destination_tokens, strict=True):
        for source, source_token in zip(sources, source_tokens, strict=True):
            if len(destinations) > 1 and source.split(":")[0] != destination.split(":")[0]:
                continue
            try:
                places = sites.place(source), sites.place(destination)
            except NoPlaceError as error:
                raise BadJobError(f"{where}: {error}") from error
            stages = params.staging_seconds is not None and places[0].is_tape
            if not stages:
                _check_places(where, (source, destination), places)
            made.append(
                File(
                    index=index,
                    begins=not made,
                    source_url=source,
                    destination_url=destination,
                    source=places[0],
                    destination=places[1],
                    checksum=None if checksum is None else str(checksum),
                    content=_content(where, checksum, params.verify_checksum),
                    size=size if size and size > 0 else None,
                    metadata=metadata,
                    activity=str(found.get("activity") or "default"),
                    scitag=_scitag(where, found),
                    strategy=str(found.get("selection_strategy") or "auto"),
                    tokens=(source_token, destination_token),
                    stages=stages,
                    archives=params.archive_seconds is not None and places[0] != places[1],
                    staging_metadata=staging_metadata,
                )
            )
    if not made:
        raise BadJobError(f"{where}: no source has the same scheme as a destination")
    if len(made) > _SOURCES_MAX:
        raise BadJobError(f"{where} has more than {_SOURCES_MAX} pairs of source and destination")
    return made


def _deletions(surls: object, sites: SiteMap, limits: Limits) -> list[File]:
    """Return the files of a deletion job, each once."""
    if not isinstance(surls, list):
        raise BadJobError("delete is not a list of URLs")
    _check_count(surls, limits)
    made: dict[str, File] = {}
    for index, each in enumerate(surls):
        where = f"delete[{index}]"
        entry = {"surl": each} if isinstance(each, str) else each
        if not isinstance(entry, dict) or not isinstance(entry.get("surl"), str):
            raise BadJobError(f"{where} is not a URL, and not an object with surl")
        unknown = sorted(entry.keys() - {"surl", "metadata"})
        if unknown:
            raise BadJobError(f"{where} has the unknown field {unknown[0]}; leave it out")
        check_metadata(f"{where}.metadata", entry.get("metadata"), limits)
        try:
            place = sites.place(entry["surl"])
        except NoPlaceError as error:
            raise BadJobError(f"{where}: {error}") from error
        made.setdefault(
            entry["surl"],
            File(
                index=index,
                begins=True,
                source_url=entry["surl"],
                destination_url=entry["surl"],
                source=place,
                destination=place,
                checksum=None,
                content=None,
                size=None,
                metadata=entry.get("metadata"),
                activity="default",
                scitag=None,
                strategy="auto",
                tokens=(None, None),
                stages=False,
                archives=False,
                staging_metadata=None,
                deletes=True,
            ),
        )
    return list(made.values())


def _check_places(where: str, urls: tuple[str, str], places: tuple[Place, Place]) -> None:
    source, destination = urls
    if places[0] == places[1]:
        raise BadJobError(
            f"{where}: {source} and {destination} are the same file; only a job that stages a file "
            "from tape may have the same source and destination"
        )


def _staging_metadata(where: str, found: Mapping[str, Any], limits: Limits) -> str | None:
    """Return the metadata of the staging in the form of the tape API.

    In FTS, the metadata for all sites is in the field ``default``. For endpoints, it is copied to
    the field ``dray``.
    """
    metadata = found.get("staging_metadata")
    if not metadata:
        return None
    if not isinstance(metadata, dict):
        raise BadJobError(f"{where}: staging_metadata is not an object")
    check_metadata(f"{where}.staging_metadata", metadata, limits)
    if "default" in metadata:
        metadata = {"dray": metadata["default"], **metadata}
    return json.dumps(metadata)


def _typed(params: Mapping[str, Any], files: list[File]) -> tuple[str, list[File]]:
    """Return the type of the job, and the files with the right ``begins``."""
    has_alternatives = any(not each.begins for each in files)
    if not params.get("multihop"):
        if has_alternatives:
            return "R", files
        return ("Y" if params.get("reuse") else "N"), files
    if has_alternatives or params.get("reuse"):
        raise BadJobError(
            f"a job with multihop can have neither reuse nor several sources; {_MULTI_WORD}"
        )
    for before, after in itertools.pairwise(files):
        if before.destination != after.source:
            raise BadJobError(
                f"the hop after {before.destination_url} begins at {after.source_url}; "
                "the source of a hop must be the destination of the previous hop"
            )
    last = len(files) - 1
    return "H", [
        dataclasses.replace(
            each,
            begins=at == 0,
            stages=each.stages and at == 0,
            archives=each.archives and at == last,
        )
        for at, each in enumerate(files)
    ]


def _urls(
    where: str, found: Mapping[str, Any], side: str
) -> tuple[Sequence[str], Sequence[str | None]]:
    urls, tokens = found.get(f"{side}s"), found.get(f"{side}_tokens")
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise BadJobError(f"{where}: {side}s is not a list of URLs")
    if not tokens:
        return urls, [None] * len(urls)
    if not isinstance(tokens, list) or len(tokens) != len(urls):
        raise BadJobError(f"{where}: {side}_tokens needs one token for each of the {side}s")
    if not all(isinstance(token, str) for token in tokens):
        raise BadJobError(f"{where}: {side}_tokens is not a list of texts")
    return urls, tokens


def _content(where: str, checksum: object, mode: str) -> str | None:
    """Return the checksum that the copy must have.

    The endpoint compares this checksum with that of the bytes that are read at the source and
    written at the destination. So the modes ``source``, ``target`` and ``both`` have the same
    effect.
    """
    if mode == "none" or checksum is None:
        return None
    if not isinstance(checksum, str):
        raise BadJobError(f"{where}: checksum is not a text")
    name, colon, _ = checksum.partition(":")
    if not colon:
        # Only a name: both ends of a copy always compare their checksums.
        return None
    match = _CHECKSUM.fullmatch(checksum.strip())
    if match is None:
        raise BadJobError(
            f"{where}: the checksum {name} cannot be verified; write ADLER32:HHHHHHHH or "
            "CRC32C:HHHHHHHH, or set verify_checksum to none"
        )
    return f"{match[1].lower()}:{match[2].lower().zfill(8)}"


def _scitag(where: str, found: Mapping[str, Any]) -> int | None:
    tag = number_of(found, "scitag", where)
    if tag is not None and not 65 <= tag <= 65535:
        raise BadJobError(f"{where}: scitag is {tag}; write a number from 65 to 65535")
    return tag


def storages(files: Sequence[File]) -> tuple[str | None, str | None]:
    """Return the storage elements of a job, each ``None`` if the files have several."""
    sources = {storage_of(each.source_url) for each in files}
    destinations = {storage_of(each.destination_url) for each in files}
    return (
        sources.pop() if len(sources) == 1 else None,
        destinations.pop() if len(destinations) == 1 else None,
    )
