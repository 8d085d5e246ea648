"""The messages of FTS about files, in the JSON of FTS. Pure functions.

The messages have no ``file_metadata`` and ``job_metadata``: :mod:`dray_fts.outbox` adds them.
"""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from dray_fts.changes import Row

__all__ = ["COMPLETE", "ENDS", "START", "STATE", "completion", "job_state_of", "start", "state"]

START, STATE, COMPLETE = "start", "state", "complete"
"""The kinds of messages: a copy has started, a file has a new state, a copy has ended."""

ENDS = {"FINISHED": "Ok", "ARCHIVING": "Ok", "FAILED": "Error", "CANCELED": "Abort"}
"""States of a file with which its copy has ended, and FTS's word for the outcome."""
ERROR_CHARACTERS_MAX = 1024
_REASON = re.compile(r"([A-Z]+) \[(\d+)\] ")


def job_state_of(row: Row, *, has_next: bool) -> str:
    """Return the field ``job_state`` as FTS sets it, which differs from the state of the job.

    Rucio ignores messages with ``ACTIVE``, except messages about hops.

    :param has_next: true if another alternative of the file is live, or another hop follows.
    """
    if row["job_type"] not in ("R", "H"):
        return "UNKNOWN"
    is_good = row["file_state"] in ("FINISHED", "ARCHIVING")
    if row["job_type"] == "H":
        return "FAILED" if not is_good else "ACTIVE" if has_next else "FINISHED"
    return "FINISHED" if is_good else "ACTIVE" if has_next else "FAILED"


def completion(row: Row, host: str, *, has_next: bool, now: float) -> dict[str, Any]:
    """Return FTS's completion message about a file.

    :param row: the file, with the columns of its job.
    :param host: name of the service.
    :param has_next: see :func:`job_state_of`.
    """
    params = json.loads(row["params"])
    # A copy that waits for tape has no `finish_time` yet. A file may fail before it starts.
    ended = row["finish_time"] or now
    started = min(row["start_time"] or ended, ended)
    size = row["filesize"] if row["filesize"] is not None else row["user_filesize"] or 0
    is_good = ENDS[row["file_state"]] == "Ok"
    found = {
        "tr_id": _transfer_id(row, started),
        **_ends(row, host),
        "src_se": row["source_se"],
        "dst_se": row["dest_se"],
        "protocol": urlsplit(row["dest_surl"]).scheme,
        "t_timeout": params["timeout_seconds"] or 0,
        "t_final_transfer_state": ENDS[row["file_state"]],
        "t_final_transfer_state_flag": int(is_good),
        **_error(None if is_good else row["reason"]),
        "tr_timestamp_start": _ms(started),
        "tr_timestamp_complete": _ms(ended),
        "timestamp_tr_st": _ms(started),
        "timestamp_tr_comp": _ms(ended),
        "transfer_time": _ms(ended - started),
        "operation_time": _ms(ended - started),
        "throughput": row["throughput"] or 0.0,
        "tr_bt_transfered": row["transferred"] or 0,
        "file_size": size,
        "f_size": size,
        "retry": 0,
        "retry_max": max(params["retry"], 0),
        "job_state": job_state_of(row, has_next=has_next),
        "job_m_replica": row["job_type"] == "R",
        "job_multihop": row["job_type"] == "H",
        "transfer_lasthop": row["job_type"] == "H" and not has_next,
        "is_archiving": row["file_state"] == "ARCHIVING",
        # The endpoint has tried again as often as its settings permit.
        "is_recoverable": False,
    }
    if params["nostreams"] is not None:
        found["nstreams"] = params["nostreams"]
    return found


def start(row: Row, host: str) -> dict[str, Any]:
    """Return FTS's message that the copy of a file has started.

    :param row: the file, with its start and the columns of its job.
    :param host: name of the service.
    """
    return {
        "transfer_id": _transfer_id(row, row["start_time"]),
        **_ends(row, host),
        "timestamp": _ms(row["start_time"]),
        "is_archiving": bool(row["archives"]),
        # FTS leaves these fields empty for storage without SRM and without sites.
        **dict.fromkeys(("src_srm_v", "dest_srm_v", "src_site_name", "dst_site_name"), ""),
        **dict.fromkeys(("srm_space_token_src", "srm_space_token_dst"), ""),
    }


def state(row: Row, host: str, *, now: float) -> dict[str, Any]:
    """Return FTS's message that a file has a new state.

    :param row: the file, with the columns of its job.
    :param host: name of the service.
    """
    return {
        "endpnt": host,
        "user_dn": "",
        "src_url": row["source_surl"],
        "dst_url": row["dest_surl"],
        "vo_name": row["vo_name"],
        "source_se": row["source_se"],
        "dest_se": row["dest_se"],
        "job_id": row["job_id"],
        "file_id": row["file_id"],
        "job_state": row["job_state"],
        "file_state": row["file_state"],
        "retry_counter": 0,
        "retry_max": max(json.loads(row["params"])["retry"], 0),
        "user_filesize": row["user_filesize"] or 0,
        "timestamp": _ms(now),
        "submit_time": _ms(row["submit_time"]),
        "staging": row["staging_start"] is not None,
        "staging_start": _ms(row["staging_start"] or 0),
        "staging_finished": _ms(row["staging_finished"] or 0),
        "archiving": row["archive_start"] is not None,
        "archiving_start": _ms(row["archive_start"] or 0),
        "archiving_finished": _ms(row["archive_finish"] or 0),
        "reason": row["reason"] or "",
    }


def _transfer_id(row: Row, started: float) -> str:
    """Return FTS's id of a copy. Rucio takes the id of the job from the end of this id."""
    day = datetime.fromtimestamp(started, timezone.utc).strftime("%Y-%m-%d-%H%M")
    return f"{day}__{_channel(row)}__{row['file_id']}__{row['job_id']}"


def _ends(row: Row, host: str) -> dict[str, Any]:
    """Return the fields about a file and its two ends."""
    return {
        "job_id": row["job_id"],
        "file_id": row["file_id"],
        "endpnt": host,
        "vo": row["vo_name"],
        "user_dn": "",
        "src_url": row["source_surl"],
        "dst_url": row["dest_surl"],
        "src_hostname": _hostname(row["source_surl"]),
        "dst_hostname": _hostname(row["dest_surl"]),
        "t_channel": _channel(row),
    }


def _channel(row: Row) -> str:
    return f"{_hostname(row['source_surl'])}__{_hostname(row['dest_surl'])}"


def _hostname(url: str) -> str:
    return urlsplit(url).hostname or ""


def _error(reason: str | None) -> dict[str, Any]:
    """Return the fields about an error. They are empty after a success."""
    scope, number = "", 0
    if reason is not None:
        match = _REASON.match(reason)
        scope, number = (match[1], int(match[2])) if match else ("TRANSFER", 70)
    category = os.strerror(number).upper().replace(" ", "_") if number else ""
    return {
        "t_error_code": number,
        "tr_error_scope": scope,
        "tr_error_category": category,
        "t__error_message": (reason or "")[:ERROR_CHARACTERS_MAX],
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
