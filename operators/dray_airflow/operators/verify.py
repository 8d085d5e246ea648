"""The operator that compares the files at two ends without moving them.

The endpoints compute checksums, and the task compares them. Names and sizes are always read from
the storage. A transfer with ``checksum_attributes`` stores the checksum of a file in the file's
attributes. For such a file, the endpoint returns the stored checksum. This checksum is that of the
data that was written, and the disk may return other data now. If no checksum is stored, the
endpoint reads the file. No option makes an endpoint read a file with a stored checksum. With
``is_read_required``, the task fails if a file has a stored checksum.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator

from dray_airflow import values
from dray_airflow.errors import DrayTaskFailure, bad_input, translated
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.operators.waiting import check_choice
from dray_airflow.submission import Clients, End

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.sdk import Context

    from dray.client import Checksum, Client, Entry
    from dray_airflow.hooks.dray import Settings
    from dray_airflow.lineage import Lineage

__all__ = ["DrayVerifyOperator"]

AT_ONCE = 6
"""Number of files whose checksums are computed concurrently at each end.

An endpoint runs eight concurrent calls of one owner.
"""
AHEAD = 2000
"""Maximum number of files requested in advance.

Each waiting request takes a kilobyte of memory, and there may be a million files.
"""
NAMED_MAX = 3
FILES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class _Tree:
    """The files to compare at one end."""

    client: Client
    top: str
    settings: Settings

    @property
    def about(self) -> str:
        """Text for messages that describes the files."""
        return self.settings.about(self.top)

    def entries(self) -> dict[str, Entry]:
        """Return files and links by their paths below the top. A single file has one entry."""
        entry = self.client.stat(self.top)
        if entry.type != "directory":
            return {"": entry}
        found: dict[str, Entry] = {}
        for below, each in self._below(self.top, ""):
            found[below] = each
            if len(found) > FILES_MAX:
                raise bad_input(
                    f"verify {self.top}",
                    f"the folder has more than {FILES_MAX} files",
                    "verify its subfolders separately",
                )
        return found

    def _below(self, path: str, prefix: str) -> Iterator[tuple[str, Entry]]:
        # List the folder completely before its subfolders, so that only one listing is open at a
        # time. One connection is then enough for any depth.
        folders: list[str] = []
        for entry in self.client.list(path):
            if entry.type == "directory":
                folders.append(entry.name)
            else:
                yield f"{prefix}{entry.name}", entry
        for name in folders:
            yield from self._below(f"{path.rstrip('/')}/{name}", f"{prefix}{name}/")

    def sum(self, below: str, algorithm: Literal["adler32", "crc32c"]) -> Checksum:
        """Ask for the checksum of a file."""
        with translated(self.about, self.settings):
            return self.client.checksum(self.path(below), algorithm)

    def path(self, below: str) -> str:
        """Return the API path of an entry below the top."""
        return f"{self.top.rstrip('/')}/{below}" if below else self.top


class DrayVerifyOperator(BaseOperator):
    """Compare a file or a folder with another one: names, sizes and checksums.

    The destination must have every file of the source, unchanged. Additional files at the
    destination are ignored. A source without files is an error by default, because an unmounted
    root looks empty. The XCom result has ``files``, ``bytes``, ``checksums`` (the number compared)
    and ``read`` (the number that an endpoint computed from the file now, instead of using a stored
    one).

    :param source: ``/ROOT/PATH`` at the endpoint of ``source_conn_id``, or a ``dray://`` URL.
    :param destination: path or URL at ``destination_conn_id``. If the source is a folder, the
        folder with the copied contents.
    :param source_conn_id: connection of the source.
    :param destination_conn_id: connection of the destination.
    :param algorithm: ``adler32`` or ``crc32c``. With ``none``, only names and sizes are compared.
    :param files_min: minimum number of files. The task fails if the source has fewer files. With 0,
        an empty source is no error.
    :param is_read_required: fail if a checksum at either end was not computed from the file now.
    """

    template_fields: Sequence[str] = (
        "source",
        "destination",
        "source_conn_id",
        "destination_conn_id",
        "algorithm",
        "files_min",
        "is_read_required",
    )
    ui_color = "#dff2e3"

    def __init__(
        self,
        *,
        source: str,
        destination: str,
        source_conn_id: str = DrayHook.default_conn_name,
        destination_conn_id: str = DrayHook.default_conn_name,
        algorithm: str = "adler32",
        files_min: int | str = 1,
        is_read_required: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.source = source
        self.destination = destination
        self.source_conn_id = source_conn_id
        self.destination_conn_id = destination_conn_id
        self.algorithm = algorithm
        self.files_min = files_min
        self.is_read_required = is_read_required

    def execute(self, context: Context) -> dict[str, int]:
        """Compare the files.

        :raises DrayTaskFailure: if files are missing or differ. The message names the first of
            them. The same error is raised if the source has too few files, or if a required read
            did not happen.
        :raises DrayTaskRetry: if an endpoint is unreachable now.
        """
        del context
        check_choice("algorithm", self.algorithm, ("adler32", "crc32c", "none"))
        files_min = values.integer("files_min", self.files_min)
        must_read = values.truth("is_read_required", self.is_read_required)
        if must_read and self.algorithm == "none":
            raise bad_input(
                "verify",
                "is_read_required is set, but with algorithm=none no file is read",
                "choose the algorithm adler32 or crc32c",
            )
        with Clients() as clients:
            source = self._tree(clients, "source")
            destination = self._tree(clients, "destination")
            with translated(source.about, source.settings):
                wanted = source.entries()
            with translated(destination.about, destination.settings):
                found = destination.entries()
            wrong = _differences(wanted, found)
            files = [below for below, entry in wanted.items() if entry.type == "file"]
            if len(files) < (files_min or 0):
                raise DrayTaskFailure(
                    f"{source.about} has {len(files)} files, fewer than "
                    f"files_min={files_min}; check that the source is mounted and complete, "
                    "or set a lower files_min",
                    "not_found",
                )
            read = 0
            if self.algorithm != "none":
                pairs = [below for below in files if below not in wrong]
                read = self._compare(source, destination, pairs, wrong)
        if wrong:
            raise _failure(wrong, len(files), destination)
        if must_read and read < 2 * len(files):
            raise DrayTaskFailure(
                f"the files of {source.top} and {destination.top} have equal checksums, but "
                f"{2 * len(files) - read} of {2 * len(files)} checksums are stored "
                "checksums, for which no file was read, although is_read_required is set; "
                "transfer the files without checksum_attributes, or compare them with another "
                "program",
                "unsupported",
            )
        result = {
            "files": len(files),
            "bytes": sum(wanted[below].size or 0 for below in files),
            "checksums": 0 if self.algorithm == "none" else len(files),
            "read": read,
        }
        self.log.info("%s equals %s: %s", self.destination, self.source, result)
        return result

    def _tree(self, clients: Clients, name: str) -> _Tree:
        conn_id = values.text(f"{name}_conn_id", getattr(self, f"{name}_conn_id"))
        end = End(conn_id, values.text(name, getattr(self, name)))
        settings = clients.settings(conn_id)
        _, path = end.split(settings)
        return _Tree(clients.of(conn_id), path, settings)

    def _compare(
        self, source: _Tree, destination: _Tree, pairs: list[str], wrong: dict[str, str]
    ) -> int:
        """Compare the checksums of ``pairs`` at both ends. Add each wrong file to ``wrong``.

        Return the number of checksums for which an endpoint had to read the file.
        """
        algorithm: Literal["adler32", "crc32c"]
        algorithm = "crc32c" if self.algorithm == "crc32c" else "adler32"
        read = 0
        with ThreadPoolExecutor(AT_ONCE) as there, ThreadPoolExecutor(AT_ONCE) as here:
            try:
                for at in range(0, len(pairs), AHEAD):
                    batch = pairs[at : at + AHEAD]
                    wanted = there.map(lambda below: source.sum(below, algorithm), batch)
                    found = here.map(lambda below: destination.sum(below, algorithm), batch)
                    for below, one, other in zip(batch, wanted, found, strict=True):
                        read += (one.from_ == "read") + (other.from_ == "read")
                        if (other.checksum, other.size) != (one.checksum, one.size):
                            wrong[below] = (
                                f"its {algorithm} is {other.checksum}, but that of the "
                                f"source is {one.checksum}"
                            )
            finally:
                # After an error, pending requests are cancelled.
                there.shutdown(cancel_futures=True)
                here.shutdown(cancel_futures=True)
        return read

    def get_openlineage_facets_on_start(self) -> Lineage:
        """Report the inputs to OpenLineage. The task has no outputs."""
        from dray_airflow import assets, lineage

        places = []
        for name in ("source", "destination"):
            end = End(getattr(self, f"{name}_conn_id"), getattr(self, name))
            places.append(assets.uri(*end.split(DrayHook(end.conn_id).settings)))
        return lineage.of_places(places, [], {})


def _differences(wanted: dict[str, Entry], found: dict[str, Entry]) -> dict[str, str]:
    wrong: dict[str, str] = {}
    for below, entry in wanted.items():
        other = found.get(below)
        if other is None:
            wrong[below] = "the file is missing"
        elif other.type != entry.type:
            wrong[below] = f"it is a {other.type}, but the source is a {entry.type}"
        elif entry.type == "symlink" and other.link != entry.link:
            wrong[below] = f"it links to {other.link!r}, but the source links to {entry.link!r}"
        elif entry.type == "file" and other.size != entry.size:
            wrong[below] = f"it has {other.size} bytes, but the source has {entry.size} bytes"
    return wrong


def _failure(wrong: dict[str, str], files: int, destination: _Tree) -> DrayTaskFailure:
    first = sorted(wrong)[:NAMED_MAX]
    named = "; ".join(f"{destination.path(below)}: {wrong[below]}" for below in first)
    more = f"; and {len(wrong) - len(first)} more" if len(wrong) > len(first) else ""
    return DrayTaskFailure(
        f"{len(wrong)} of {files} files differ from the source: {named}{more}; clear the "
        "transfer's task to send them again (with overwrite=always if only checksums differ)",
        "checksum_mismatch",
    )
