"""The completeness of Rucio's datasets and files at RSEs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dray_airflow import values
from dray_airflow.errors import bad_input, translated_rucio

if TYPE_CHECKING:
    from dray_airflow.hooks.rucio import RucioSettings

__all__ = ["Completeness", "completeness_of", "split_did"]


@dataclass(frozen=True, slots=True)
class Completeness:
    """The RSEs at which a dataset is complete.

    :param files: number of files of the dataset.
    :param bytes: bytes of the dataset.
    :param is_open: true if the dataset may get more files.
    :param complete: RSEs with all files.
    :param partial: for each RSE with some of the files but not all, the number of these files.
    """

    did: str
    files: int
    bytes: int
    is_open: bool
    complete: tuple[str, ...]
    partial: dict[str, int]

    def is_enough(self, copies: int, *, is_closed_required: bool) -> bool:
        """Return true if enough RSEs have all files. A dataset without files is not complete."""
        if is_closed_required and self.is_open:
            return False
        return self.files > 0 and len(self.complete) >= copies

    def result(self) -> dict[str, Any]:
        """Return the result of a task, small enough for an XCom."""
        return {
            "did": self.did,
            "files": self.files,
            "bytes": self.bytes,
            "rses": list(self.complete),
        }

    @property
    def story(self) -> str:
        """The completeness in one line."""
        some = ", ".join(f"{rse} has {count}" for rse, count in sorted(self.partial.items()))
        return (
            f"{self.did} has {self.files} files{' and is open' if self.is_open else ''}; complete "
            f"at: {', '.join(self.complete) or 'no RSE'}" + (f"; {some}" if some else "")
        )


def completeness_of(
    client: Any,  # noqa: ANN401
    settings: RucioSettings,
    scope: str,
    name: str,
    rse_expression: str,
) -> Completeness:
    """Return the RSEs of an expression at which a dataset or a file is complete.

    A daemon updates Rucio's own summary of a dataset, so the summary may be minutes old. This
    function therefore requests a count of the files (``deep``).

    :raises DrayTaskFailure: if the DID does not exist, or the expression is invalid.
    """
    with translated_rucio(settings.about(f"look for {scope}:{name} at {rse_expression}")):
        did = client.get_did(scope, name)
        wanted = {each["rse"] for each in client.list_rses(rse_expression)}
        if did["type"] == "FILE":
            (found,) = client.list_replicas([{"scope": scope, "name": name}], all_states=True)
            states = {rse: state for rse, state in found["states"].items() if rse in wanted}
            counts = {rse: int(state == "AVAILABLE") for rse, state in states.items()}
            files, size = 1, int(did.get("bytes") or 0)
        else:
            rows = list(client.list_dataset_replicas(scope, name, deep=True))
            counts = {
                row["rse"]: int(row["available_length"] or 0)
                for row in rows
                if row["rse"] in wanted
            }
            files = max((int(row["length"] or 0) for row in rows), default=0)
            size = max((int(row["bytes"] or 0) for row in rows), default=0)
    return Completeness(
        f"{scope}:{name}",
        files,
        size,
        bool(did.get("open")),
        tuple(sorted(rse for rse, count in counts.items() if files and count >= files)),
        {rse: count for rse, count in counts.items() if 0 < count < files},
    )


def split_did(did: str) -> tuple[str, str]:
    """Return scope and name of a DID.

    :raises DrayTaskFailure: if the text is not ``SCOPE:NAME``.
    """
    text = values.text("did", did)
    scope, colon, name = text.partition(":")
    if not scope or not colon or not name:
        raise bad_input("use did", f"{text!r} is not a DID", "write SCOPE:NAME")
    return scope, name
