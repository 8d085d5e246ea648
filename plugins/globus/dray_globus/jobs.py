"""Translate a request for a transfer to a submission for the Transfer service. Pure.

Invariant owned here: each field of a request is either translated or refused. No field is ignored.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import posixpath
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import globus_sdk

from dray.client import Place, Request, Selection
from dray_globus.errors import usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dray_globus.sites import SiteMap

__all__ = ["Item", "Job", "Options", "job_of", "options_of"]

ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
LABEL_CHARACTERS_MAX = 128
SYNC_LEVELS: Mapping[str, int | None] = {"never": 0, "if-different": 3, "always": None}
"""Sync level by ``overwrite``: 0 copies only missing files, 3 compares checksums."""
#: Number of hexadecimal digits of a checksum, by the algorithm.
_DIGITS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128, "adler32": 8, "crc32": 8}
#: Fields of a request that are accepted. ``activity`` and ``labels`` are not sent to Globus. The
#: record keeps them for callers.
_TRANSLATED = frozenset(
    {
        "sources",
        "destination",
        "id",
        "content",
        "selection",
        "deadline",
        "admission",
        "activity",
        "labels",
        "overwrite",
        "verify",
        "clear_data",
    }
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the Globus Transfer service that have no field in a request of dray.

    :param label: text by which a person recognises the task, by default ``dray ID``.
    :param preserve_timestamp: copy modification times.
    :param skip_source_errors: continue after a source file that cannot be read. The transfer is
        then ``incomplete``.
    :param fail_on_quota_errors: fail if the quota of the destination is exceeded. With false, the
        service retries until the deadline.
    :param notify_on_succeeded: send an e-mail to the owner of the task.
    :param notify_on_failed: as ``notify_on_succeeded``, after a failure.
    :param notify_on_inactive: as ``notify_on_succeeded``, if credentials have expired.
    :param checksums: required checksum, ``ALGORITHM:HEX``, by the URL of a source file.
    """

    label: str | None = None
    preserve_timestamp: bool = False
    skip_source_errors: bool = False
    fail_on_quota_errors: bool = True
    notify_on_succeeded: bool = False
    notify_on_failed: bool = False
    notify_on_inactive: bool = False
    checksums: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """A file or folder to copy.

    :param checksum: required checksum of the file: its algorithm and its hexadecimal digits.
    """

    source: str
    destination: str
    is_recursive: bool = False
    checksum: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A submission: the two collections, the items, and the options of the service.

    :param size: required size of the file, for a job with one file. The executor compares it with
        the actual size before it submits the job.
    """

    source: str
    destination: str
    items: tuple[Item, ...]
    options: Options
    overwrite: str
    is_verified: bool
    is_encrypted: bool | None
    deadline: datetime | None
    size: int | None = None

    @property
    def body(self) -> str:
        """A digest of the fields that describe the data."""
        words = dataclasses.asdict(self)
        del words["deadline"]
        text = json.dumps(words, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def data(self, id: str, submission_id: str) -> globus_sdk.TransferData:
        """Return the document of the submission."""
        options = self.options
        level = SYNC_LEVELS[self.overwrite]
        data = globus_sdk.TransferData(
            self.source,
            self.destination,
            label=(options.label or f"dray {id}")[:LABEL_CHARACTERS_MAX],
            submission_id=submission_id,
            sync_level=globus_sdk.MISSING if level is None else level,
            verify_checksum=self.is_verified,
            preserve_timestamp=options.preserve_timestamp,
            encrypt_data=globus_sdk.MISSING if self.is_encrypted is None else self.is_encrypted,
            deadline=globus_sdk.MISSING if self.deadline is None else _written(self.deadline),
            skip_source_errors=options.skip_source_errors,
            fail_on_quota_errors=options.fail_on_quota_errors,
            notify_on_succeeded=options.notify_on_succeeded,
            notify_on_failed=options.notify_on_failed,
            notify_on_inactive=options.notify_on_inactive,
        )
        for item in self.items:
            algorithm, digits = item.checksum or (globus_sdk.MISSING, globus_sdk.MISSING)
            data.add_item(
                item.source,
                item.destination,
                recursive=item.is_recursive,
                external_checksum=digits,
                checksum_algorithm=algorithm,
            )
        return data


def options_of(words: Mapping[str, Any]) -> Options:
    """Create options from their names and values.

    :raises DrayUsageError: for an unknown name.
    """
    known = [each.name for each in dataclasses.fields(Options)]
    for name in words:
        if name not in known:
            raise _invalid(name, "there is no such option", f"use one of {', '.join(known)}")
    return Options(**words)


def job_of(request: Request, sites: SiteMap, options: Options | None = None) -> Job:
    """Translate a request of dray into a submission to Globus.

    :raises DrayUsageError: if the request is invalid, or asks for something that Globus cannot do.
        The message names the field.
    """
    options = options or Options()
    _refuse(request)
    sources = request.sources
    several = [sources] if isinstance(sources, (str, Place)) else list(sources)
    if not several:
        raise _invalid("sources", "the list is empty", "give at least one source")
    texts = [_text(each) for each in several]
    places = [sites.place(text) for text in texts]
    if len({place.collection for place in places}) != 1:
        raise _invalid(
            "sources",
            "the sources are in several collections",
            "submit one transfer for each collection",
        )
    target = sites.place(_text(request.destination))
    is_recursive = bool(request.selection and request.selection.recursive)
    checksums = _checksums(request, texts, options, is_recursive)
    is_folder = target.path.endswith("/") or len(places) > 1
    items = tuple(
        Item(
            _source(place.path, is_recursive),
            _target(place.path, target.path, is_folder, is_recursive),
            is_recursive,
            checksums.get(text),
        )
        for text, place in zip(texts, places, strict=True)
    )
    if len({item.destination for item in items}) != len(items):
        raise _invalid(
            "sources", "two sources have the same name", "copy the two to different folders"
        )
    return Job(
        places[0].collection,
        target.collection,
        items,
        options,
        request.overwrite or "if-different",
        request.verify is not False,
        None if request.clear_data is None else not request.clear_data,
        request.deadline,
        request.content.size if request.content else None,
    )


def _refuse(request: Request) -> None:
    """Refuse each field that Globus has no counterpart for."""
    for each in dataclasses.fields(request):
        if each.name not in _TRANSLATED and getattr(request, each.name) is not None:
            raise _invalid(
                each.name,
                "the Transfer service has no such option",
                "leave the field out, or use two dray:// URLs without Globus",
            )
    selection = request.selection or Selection()
    for name in ("include", "exclude", "range", "links"):
        if getattr(selection, name):
            raise _invalid(
                f"selection.{name}",
                "the Transfer service has no option with this meaning",
                "list the files as sources",
            )
    if request.admission == "required":
        raise _invalid(
            "admission",
            "Globus promises no deadline",
            "write best_effort; the service then cancels the task at its deadline",
        )
    if request.id is not None and not ID.fullmatch(request.id):
        raise _invalid(
            "id", f"{request.id!r} is not an id", "write 1 to 64 characters of [A-Za-z0-9._:-]"
        )
    deadline = request.deadline
    if deadline is not None and deadline.tzinfo is None:
        raise _invalid("deadline", f"{deadline!r} has no time zone", "use timezone.utc")
    if deadline is not None and deadline <= datetime.now(timezone.utc):
        raise _invalid("deadline", f"{deadline.isoformat()} has passed", "give a later deadline")


def _checksums(
    request: Request, texts: list[str], options: Options, is_recursive: bool
) -> dict[str, tuple[str, str]]:
    """Return the required checksums by the URLs of the sources."""
    asked = dict(options.checksums)
    content = request.content
    if content is not None and (content.checksum or content.size is not None):
        if len(texts) > 1 or is_recursive:
            raise _invalid("content", "the sources are not one file", "give one file as source")
        if content.checksum:
            asked[texts[0]] = content.checksum
    unknown = sorted(set(asked) - set(texts))
    if unknown:
        raise _invalid("checksums", f"{unknown[0]} is not a source", "use the URL of a source")
    if asked and is_recursive:
        raise _invalid("checksums", "the source is a folder", "list the files as sources")
    return {url: _checksum(text) for url, text in asked.items()}


def _checksum(text: str) -> tuple[str, str]:
    algorithm, _, digits = text.partition(":")
    length = _DIGITS.get(algorithm.lower())
    if length is None or not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", digits):
        raise _invalid(
            "checksum",
            f"{text!r} is not a checksum that the Transfer service can compare",
            f"write ALGORITHM:HEX with one of {', '.join(_DIGITS)}",
        )
    return algorithm.upper(), digits.lower()


def _source(path: str, is_recursive: bool) -> str:
    if path.endswith("/") and not is_recursive:
        raise _invalid("sources", f"{path} is a folder", "set recursive")
    return path


def _target(source: str, target: str, is_folder: bool, is_recursive: bool) -> str:
    """Return the full path of an item's destination. The service needs the name of the file too.

    The contents of a source that ends with a slash become the contents of the destination.
    """
    if not is_folder or (is_recursive and source.endswith("/")):
        path = target
    else:
        path = posixpath.join(target, posixpath.basename(source.rstrip("/")))
    return f"{path.rstrip('/')}/" if is_recursive else path


def _text(place: Place | str) -> str:
    if isinstance(place, str):
        return place
    if place.ticket or place.key or place.address:
        raise _invalid("ticket", "the Transfer service does not use tickets", "give only URLs")
    if place.size is not None:
        raise _invalid(
            "size", "a source or the destination has a size", "write the size in content"
        )
    return place.url


def _written(time: datetime) -> str:
    return time.astimezone(timezone.utc).isoformat(timespec="seconds")


def _invalid(name: str, cause: str, remedy: str) -> Exception:
    return usage(f"use the field {name} for Globus", cause, remedy)
