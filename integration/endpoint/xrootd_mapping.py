"""Map the arguments of XRootD's ``ofs.tpc pgm`` to a request and back. Pure functions.

The server at the destination runs the program with the arguments
``[-C ALG[:VALUE]] [-S N] SOURCE_URL FILE``. When the client disconnects, the server kills the
program with SIGKILL. The server treats exit code 0 as success. It searches the program's output for
the last line with ``": "``, and sends the client the text after the first ``": "`` of this line.

A later run submits an equal request with the same id, and so continues with the durable data of the
earlier run. So the request must not contain values that change from run to run. Of these, the
rendezvous key is passed on only to get a ticket. Others, such as the client's trace id, become
labels that are set after the submission.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "ARGV",
    "ENV",
    "Mapped",
    "Run",
    "UnknownArgument",
    "ending",
    "request_of",
    "run_back",
    "run_of",
]

Json: TypeAlias = Any

#: Seconds without a query after which the endpoint cancels the transfer. The copy program of the
#: XRootD server sends the queries. If the server kills this program with SIGKILL, the program
#: cannot cancel the transfer.
BOUND_SECONDS = 30
STREAMS_MAX = 15
#: Variables that name a file with the client's credential.
FILES_OF_SECRETS = ("X509_USER_PROXY", "BEARER_TOKEN_FILE")


class Rule(NamedTuple):
    """Treatment of one item: ``how`` as in :mod:`integration.endpoint.fts_mapping`."""

    how: str
    to: str


ARGV: dict[str, Rule] = {
    "-C": Rule("field", "content.checksum with a value; else a label, and checksum_attributes"),
    "-S": Rule("field", "streams"),
    "source path": Rule("field", "sources[0].url"),
    "source host": Rule("field", "sources[0].url: the endpoint beside that server"),
    "tpc.key": Rule("secret", "buys the ticket at the source's server; worth one open there"),
    "tpc.org": Rule("note", "who asked the source's server"),
    "other cgi": Rule("secret", "may hold authz=; for the source's server alone"),
    "file": Rule("field", "destination.url; the server has made it, so overwrite is always"),
}
"""Words of the command line, the source URL taken apart."""

ENV: dict[str, Rule] = {
    "XRDLCLROOT": Rule("field", "what is taken off the file's path to give the root's"),
    "XRDTPC_SPROT": Rule("label", "asked for of the source; sessions are TLS unless clear_data"),
    "XRDTPC_TPROT": Rule("label", "asked for of the destination"),
    "XRD_TIDENT": Rule("note", "the client's trace id, another in each run"),
    "XRDTPCDLG": Rule("note", "that a credential was delegated; its file is named by fcreds"),
    "X509_USER_PROXY": Rule("secret", "the client's proxy: mints the ticket at the source"),
    "BEARER_TOKEN_FILE": Rule("secret", "the client's token: mints the ticket at the source"),
    "XRD_CSLIST": Rule("not needed", "adler32 and crc32c are always known"),
    "XRDTPC": Rule("not needed", "says that this is such a run"),
}
"""Environment variables that describe the transfer. The server sets others, which are ignored."""


class UnknownArgument(ValueError):
    """The command line has an argument that no known version of the server passes."""


@dataclass(frozen=True)
class Run:
    """The parsed arguments and environment of one run of the program."""

    scheme: str
    source_host: str
    source_path: str
    file: str
    local_root: str
    algorithm: str | None = None
    checksum: str | None = None
    streams: int | None = None
    protocols: tuple[str, str] = ("", "")
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mapped:
    """A request, and the values that must not be written into it.

    :param secrets: values that are used only to get the ticket.
    :param notes: labels to set after the submission. They are different in each run.
    """

    request: dict[str, Json]
    secrets: Mapping[str, str] = field(repr=False)
    notes: Mapping[str, str]


def run_of(argv: Sequence[str], env: Mapping[str, str]) -> Run:
    """Parse the arguments of a run of the server's copy program. ``argv`` lacks the program itself.

    :raises UnknownArgument: for a word that is not in :data:`ARGV`.
    """
    words = list(argv)
    if len(words) < 2:
        raise UnknownArgument("no source and destination")
    *options, source, file = words
    algorithm = checksum = streams = None
    while options:
        name = options.pop(0)
        if name not in ("-C", "-S") or not options:
            raise UnknownArgument(name)
        value = options.pop(0)
        if name == "-S":
            streams = int(value)
        else:
            algorithm, _, checksum = value.partition(":")
    parts = urlsplit(source)
    if parts.scheme not in ("root", "xroot", "roots", "xroots") or not parts.netloc:
        raise UnknownArgument("the source is no URL of XRootD")
    # The server writes an empty first pair: `?&tpc.key=...&tpc.org=...`.
    pairs = (pair.partition("=") for pair in parts.query.split("&") if pair)
    given = {name: value for name, _, value in pairs}
    notes = {"xrd.org": given.pop("tpc.org", ""), "xrd.tident": env.get("XRD_TIDENT", "")}
    notes["xrd.delegated"] = env.get("XRDTPCDLG", "")
    secrets = {**given, **{name: env[name] for name in FILES_OF_SECRETS if name in env}}
    return Run(
        scheme=parts.scheme,
        source_host=parts.netloc,
        # Skip the slash that ends the host. The path starts with its own slash.
        source_path=parts.path[1:],
        file=file,
        local_root=env.get("XRDLCLROOT", ""),
        algorithm=algorithm,
        checksum=checksum or None,
        streams=streams,
        protocols=(env.get("XRDTPC_SPROT", ""), env.get("XRDTPC_TPROT", "")),
        secrets=secrets,
        notes={name: value for name, value in notes.items() if value},
    )


def request_of(
    run: Run,
    source_root: str,
    destination_root: str,
    *,
    size: int | None = None,
    modified: str | None = None,
) -> Mapped:
    """Return the request that a run of the program submits.

    :param source_root: ``dray://HOST/ROOT`` of the endpoint beside the source's server.
    :param destination_root: ``/ROOT`` of the endpoint beside the destination's server.
    :param size: ``oss.asize`` of the client, or the size at the source's endpoint. The server
        passes ``oss.asize`` to storage plug-ins, not to the program, and checks no size later.
    :param modified: the source's modification time. Another version of the file gets another id.
    """
    logical = run.file.removeprefix(run.local_root.rstrip("/")) if run.local_root else run.file
    labels = {
        "xrd.scheme": run.scheme,
        "xrd.protocols": "/".join(run.protocols),
        "xrd.source": run.source_host,
        "xrd.local_root": run.local_root,
        "xrd.algorithm": run.algorithm or "",
    }
    content: dict[str, Json] = {}
    if size is not None:
        content["size"] = size
    if run.checksum:
        content["checksum"] = f"{run.algorithm}:{run.checksum}"
    request: dict[str, Json] = {
        "id": _key(source_root, run.source_path, destination_root + logical, size, modified),
        "sources": [{"url": source_root + _text(run.source_path)}],
        "destination": {"url": destination_root + _text(logical)},
        "content": content,
        "streams": None if run.streams is None else min(STREAMS_MAX, max(1, run.streams)),
        # The server has made the file, empty, before it runs the program.
        "overwrite": "always",
        "checksum_attributes": True,
        "bound_seconds": BOUND_SECONDS,
        "labels": {name: value for name, value in labels.items() if value},
    }
    given = {name: value for name, value in request.items() if value not in (None, {})}
    return Mapped(given, run.secrets, run.notes)


def run_back(mapped: Mapped, source_root: str, destination_root: str) -> Run:
    """Return the run of the program from which a request and its secrets were mapped."""
    request, labels = mapped.request, mapped.request["labels"]
    checksum = request.get("content", {}).get("checksum", "").partition(":")[2]
    local_root = labels.get("xrd.local_root", "")
    logical = _bytes(request["destination"]["url"].removeprefix(destination_root))
    first, _, second = labels.get("xrd.protocols", "").partition("/")
    return Run(
        scheme=labels["xrd.scheme"],
        source_host=labels["xrd.source"],
        source_path=_bytes(request["sources"][0]["url"].removeprefix(source_root)),
        file=local_root.rstrip("/") + logical,
        local_root=local_root,
        algorithm=labels.get("xrd.algorithm"),
        checksum=checksum or None,
        streams=request.get("streams"),
        protocols=(first, second),
        secrets=mapped.secrets,
        notes=mapped.notes,
    )


def argv_of(run: Run) -> list[str]:
    """Return the command line of a run, without the program."""
    algorithm = f"{run.algorithm}:{run.checksum}" if run.checksum else run.algorithm
    words = ["-C", algorithm] if algorithm else []
    words += [] if run.streams is None else ["-S", str(run.streams)]
    cgi = {name: value for name, value in run.secrets.items() if name not in FILES_OF_SECRETS}
    if "xrd.org" in run.notes:
        cgi["tpc.org"] = run.notes["xrd.org"]
    query = "".join(f"&{name}={value}" for name, value in cgi.items())
    return [*words, f"{run.scheme}://{run.source_host}/{run.source_path}?{query}", run.file]


def ending(transfer: Mapping[str, Json]) -> tuple[int, str]:
    """Return the program's exit code and its last line, in the form that the server parses.

    The line contains ``": "`` exactly once, because the server sends the client the text after the
    first ``": "``. No other output of the program may contain ``": "``. Exit code 1: a person must
    act. Exit code 2: the same command resumes the copy.
    """
    if transfer["state"] == "done" and not transfer.get("files", {}).get("skipped"):
        return 0, ""
    errors = [transfer.get("error"), *(each["error"] for each in transfer.get("failures", ()))]
    found = next((error for error in errors if error), None)
    if found is None:
        words, is_permanent = f"the transfer is {transfer['state']}", False
    else:
        words, is_permanent = found["message"], found["status"] == "permanent"
    plain = " ".join(words.split()).replace(": ", " - ")
    return (1 if is_permanent else 2), f"dray: {plain} (transfer {transfer['id']})"


def _key(*parts: object) -> str:
    whole = "\0".join(str(part) for part in parts).encode()
    return f"xrd-{hashlib.sha256(whole).hexdigest()[:40]}"


def _text(path: str) -> str:
    return path.replace("%", "%25")


def _bytes(text: str) -> str:
    return text.replace("%25", "%")
