"""The WLCG Tape REST API of an endpoint: requests to stage files, and the places of their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dray.client._calls import Call, Safety
from dray.client._errors import usage
from dray.client._reader import ShapeError, read
from dray.client._urls import segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dray.client._steps import Json

__all__ = [
    "TapeFile",
    "TapeLocality",
    "TapeProgress",
    "TapeStage",
    "localities",
    "progress",
    "release",
    "stage",
]

FILES_MAX = 10_000
"""Maximum number of files of a request, and of paths of a call."""


@dataclass(frozen=True, slots=True)
class TapeFile:
    """A file to stage.

    :param path: path in the slow root, or in the fast root.
    :param pin_seconds: time for which the endpoint keeps the fast copy. By default the setting
        ``tape.lifetime`` of the endpoint.
    :param metadata: one JSON object for each site, by the name of the site (``targetedMetadata``).
        The endpoint uses the fields ``activity`` and ``priority`` of the object for its own
        ``sitename``, or else of the object for ``dray``.
    """

    path: str
    pin_seconds: int | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TapeProgress:
    """The progress of a file of a stage request.

    :param state: ``SUBMITTED``, ``STARTED``, ``COMPLETED``, ``FAILED`` or ``CANCELLED``.
    :param disk_path: path of the fast copy.
    :param error: reason of a failure.
    """

    path: str
    state: str
    disk_path: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TapeStage:
    """A stage request, with the progress of its files."""

    id: str
    files: tuple[TapeProgress, ...]


@dataclass(frozen=True, slots=True)
class TapeLocality:
    """The place of a file's data.

    :param locality: ``TAPE``, ``DISK_AND_TAPE``, ``DISK`` or ``UNAVAILABLE``. ``None`` with an
        error.
    :param error: reason for which the endpoint does not report the place.
    """

    path: str
    locality: str | None = None
    error: str | None = None


def stage(files: Iterable[TapeFile]) -> Call[str]:
    """Request to stage files. Not repeatable, because each request has pins of its own."""
    body = {"files": [_file(each) for each in files]}
    _check(body["files"])
    return Call("stage the files", "POST", "/v1/tape/stage", _id, body=body, safety=Safety.ONCE)


def _file(file: TapeFile) -> dict[str, object]:
    found: dict[str, object] = {"path": file.path}
    if file.pin_seconds is not None:
        found["diskLifetime"] = f"PT{file.pin_seconds}S"
    if file.metadata is not None:
        found["targetedMetadata"] = dict(file.metadata)
    return found


def _id(value: Json) -> str:
    id = value.get("requestId") if isinstance(value, Mapping) else None
    if not isinstance(id, str) or not id:
        raise ShapeError("answer.requestId is not a text")
    return id


def progress(id: str) -> Call[TapeStage]:
    """Get the progress of a stage request."""
    place = f"/v1/tape/stage/{segment(id)}"
    return Call("look up the stage request", "GET", place, _progress)


def _progress(value: Json) -> TapeStage:
    files = value.get("files") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(files, list):
        raise ShapeError("answer.files is not a list")
    renamed = [
        {**each, "disk_path": each["diskPath"]}
        if isinstance(each, Mapping) and "diskPath" in each
        else each
        for each in files
    ]
    return read(TapeStage, {**value, "files": renamed})


def release(id: str, paths: Iterable[str]) -> Call[None]:
    """End the pins of files, and cancel the staging of files that are not staged yet."""
    body = {"paths": list(paths)}
    _check(body["paths"])
    place = f"/v1/tape/release/{segment(id)}"
    return Call("release the files", "POST", place, _nothing, body=body)


def localities(paths: Iterable[str]) -> Call[dict[str, TapeLocality]]:
    """Get the places of files."""
    body = {"paths": list(paths)}
    _check(body["paths"])
    return Call("look up the places of files", "POST", "/v1/tape/archiveinfo", _places, body=body)


def _places(value: Json) -> dict[str, TapeLocality]:
    if not isinstance(value, list):
        raise ShapeError("answer is not a list")
    found = (read(TapeLocality, each, f"answer[{at}]") for at, each in enumerate(value))
    return {each.path: each for each in found}


def _nothing(value: Json) -> None:
    del value


def _check(several: Sequence[object]) -> None:
    if len(several) > FILES_MAX:
        raise usage(
            f"the call has {len(several)} files; at most {FILES_MAX} are allowed",
            "split the list into several calls",
        )
