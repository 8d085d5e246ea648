"""The pause before a retry, by the time that the cause of the failure usually needs.

For ``retry_policy=`` of operators, Airflow 3.3 and later; before that only ``retry_delay`` applies.
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
    # An endpoint that restarts is reachable within seconds, a host that boots within minutes.
    "unreachable": 15,
    "timed_out": 15,
    "busy": 30,
    "no_place": 30,
    "cancelled": 15,
    # The lease of an orphan expires by itself.
    "lease_held": 60,
    "lease_lost": 15,
    # A person must free space, or repair a disk.
    "no_space": 600,
    "io": 60,
    "source_changed": 60,
    "checksum_mismatch": 15,
    "short_read": 60,
    "limit_exceeded": 60,
}
"""Seconds before the first retry, by kind of error; guesses, revisit."""
OTHER_SECONDS = 60
LONGEST_SECONDS = 1800


def delay(kind: str, try_number: int) -> timedelta:
    """Return the pause before the next try; it doubles with each try.

    :param kind: the kind of error, a word of :data:`dray.errors.ErrorKind`.
    :param try_number: of the try that failed, 1 for the first.
    """
    seconds = WAITS.get(kind, OTHER_SECONDS) * 2 ** min(max(try_number, 1) - 1, 10)
    return timedelta(seconds=min(seconds, LONGEST_SECONDS))


class DrayRetryPolicy(RetryPolicy):
    """Choose the pause by the error; permanent errors get no retry (docs/reference/airflow.md)."""

    def __init__(self) -> None:
        """Check the Airflow version.

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
        """Decide about one failure; errors of other code follow the task's own settings."""
        del max_tries, context
        kind = getattr(exception, "kind", None)
        if not isinstance(kind, str):
            return RetryDecision.default()
        wait = delay(kind, try_number)
        word = kind.replace("_", " ")
        return RetryDecision.retry(wait, f"{word}: again in {wait.total_seconds():.0f} s")

    def serialize(self) -> dict[str, Any]:
        """Return the serialised form for the DAG: empty, because the policy has no parameters."""
        return {}
