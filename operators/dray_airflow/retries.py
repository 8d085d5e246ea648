"""When a failed task is tried again: as soon as what failed has a chance to be mended.

For ``retry_policy=`` of operators, Airflow 3.3 and later; before that ``retry_delay`` alone says.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dray_airflow.version_compat import HAS_RETRY_POLICY

if TYPE_CHECKING or HAS_RETRY_POLICY:
    from airflow.sdk import RetryDecision, RetryPolicy
else:
    RetryPolicy = object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

__all__ = ["WAITS", "DrayRetryPolicy", "delay"]

WAITS: Mapping[str, int] = {
    # An endpoint that restarts is back within seconds, a host that boots within minutes.
    "unreachable": 15,
    "timed_out": 15,
    "busy": 30,
    "no_place": 30,
    "cancelled": 15,
    # The lease of an orphan runs out by itself.
    "lease_held": 60,
    "lease_lost": 15,
    # Somebody has to make room, or a disk has to be mended.
    "no_space": 600,
    "io": 60,
    "source_changed": 60,
    "checksum_mismatch": 15,
    "short_read": 60,
    "limit_exceeded": 60,
}
"""Seconds before the first retry, by what failed; guesses, revisit."""
OTHER_SECONDS = 60
LONGEST_SECONDS = 1800


def delay(kind: str, try_number: int) -> timedelta:
    """Say how long to wait; doubles with each try.

    :param kind: what failed, a word of :data:`dray.errors.ErrorKind`.
    :param try_number: of the try that failed, 1 for the first.
    """
    seconds = WAITS.get(kind, OTHER_SECONDS) * 2 ** min(max(try_number, 1) - 1, 10)
    return timedelta(seconds=min(seconds, LONGEST_SECONDS))


class DrayRetryPolicy(RetryPolicy):
    """Waits by what failed; what will not go away fails at once (docs/reference/airflow.md)."""

    def __init__(self) -> None:
        """Make one.

        :raises RuntimeError: before Airflow 3.3, which has no such policies.
        """
        if not HAS_RETRY_POLICY:
            raise RuntimeError(
                "DrayRetryPolicy needs Airflow 3.3 or later; use retries and retry_delay instead"
            )

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Context | None = None,
    ) -> RetryDecision:
        """Decide about one failure; what is not of dray is left to the task's own settings."""
        del max_tries, context
        kind = getattr(exception, "kind", None)
        if not isinstance(kind, str):
            return RetryDecision.default()
        wait = delay(kind, try_number)
        word = kind.replace("_", " ")
        return RetryDecision.retry(wait, f"{word}: again in {wait.total_seconds():.0f} s")

    def serialize(self) -> dict[str, Any]:
        """Give what the DAG's serialised form holds: nothing, all of them are the same."""
        return {}
