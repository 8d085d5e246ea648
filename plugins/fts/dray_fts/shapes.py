"""Jobs and files in the JSON of FTS. Pure functions."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dray_fts.changes import Row

__all__ = ["FILE_FIELDS", "deletion_json", "file_json", "job_json", "time_text"]

_MIB = 1 << 20
_OVERWRITE = {"no": None, "yes": "Y", "hops": "M"}
_CHECKSUM = {"none": "n", "source": "s", "target": "t", "both": "b"}


def time_text(seconds: float | None) -> str | None:
    """Return a time as FTS writes it: UTC without a zone."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def job_json(row: Row, host: str) -> dict[str, Any]:
    """Return a job in the JSON form of FTS.

    :param host: name of the service.
    """
    params = json.loads(row["params"])
    return {
        "job_id": row["job_id"],
        "job_state": row["job_state"],
        "job_type": row["job_type"],
        "job_metadata": json.loads(row["job_metadata"]),
        "job_finished": time_text(row["job_finished"]),
        "submit_time": time_text(row["submit_time"]),
        "submit_host": host,
        "user_dn": row["user_dn"],
        "vo_name": row["vo_name"],
        "cred_id": row["cred_id"],
        "priority": row["priority"],
        "reason": row["reason"],
        "source_se": row["source_se"],
        "dest_se": row["dest_se"],
        "cancel_job": row["job_state"] == "CANCELED",
        "verify_checksum": _CHECKSUM[params["verify_checksum"]],
        "overwrite_flag": _OVERWRITE[params["overwrite"]],
        "retry": params["retry"],
        "retry_delay": params["retry_delay"],
        "max_time_in_queue": params["queue_seconds"],
        "bring_online": params.get("staging_seconds") or -1,
        "copy_pin_lifetime": params.get("pin_seconds") or -1,
        "archive_timeout": params.get("archive_seconds") or -1,
        "source_space_token": "",
        "space_token": "",
        "internal_job_params": None,
    }


def file_json(row: Row) -> dict[str, Any]:
    """Return a file."""
    return {name: make(row) for name, make in _FILE.items()}


def deletion_json(row: Row) -> dict[str, Any]:
    """Return a file of a deletion job."""
    found = file_json(row)
    left_out = ("dest_surl", "dest_se", "transfer_host")
    return {name: None if name in left_out else value for name, value in found.items()}


def _seconds(row: Row) -> float | None:
    if row["start_time"] is None or row["finish_time"] is None:
        return None
    return max(float(row["finish_time"] - row["start_time"]), 0.0)


def _throughput(row: Row) -> float | None:
    return None if row["throughput"] is None else float(row["throughput"]) / _MIB


_FILE: dict[str, Any] = {
    **{
        name: lambda row, name=name: row[name]
        for name in (
            "file_id",
            "job_id",
            "file_index",
            "file_state",
            "reason",
            "source_surl",
            "dest_surl",
            "source_se",
            "dest_se",
            "vo_name",
            "checksum",
            "user_filesize",
            "filesize",
            "transferred",
            "activity",
            "scitag",
            "selection_strategy",
            "priority",
        )
    },
    "file_metadata": lambda row: json.loads(row["file_metadata"]),
    "start_time": lambda row: time_text(row["start_time"]),
    "finish_time": lambda row: time_text(row["finish_time"]),
    "tx_duration": _seconds,
    "throughput": _throughput,
    "retry": lambda _row: 0,
    "recoverable": lambda row: row["pauses"] > 0,
    "transfer_host": lambda row: row["dest_endpoint"],
    "staging_start": lambda row: time_text(row["staging_start"]),
    "staging_finished": lambda row: time_text(row["staging_finished"]),
    "staging_host": lambda row: row["source_endpoint"] if row["stages"] else None,
    "bringonline_token": lambda row: row["stage_id"],
    "archive_start_time": lambda row: time_text(row["archive_start"]),
    "archive_finish_time": lambda row: time_text(row["archive_finish"]),
    "log_file": lambda _row: None,
    "pid": lambda _row: None,
}
FILE_FIELDS = frozenset(_FILE)
"""The fields of a file."""
