"""A retry policy that chooses the pause before a retry.

The pause depends on the time that the cause of the failure usually lasts. Pass the policy to an
operator as ``retry_policy=``, in Airflow 3.3 and later. In earlier versions only ``retry_delay``
applies.
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
    # A restarted endpoint is reachable after some seconds, and a booted host after some minutes.
    "unreachable": 15,
    "timed_out": 15,
    "busy": 30,
    "no_place": 30,
    "cancelled": 15,
    # The lease of a process that no longer exists expires without any action.
    "lease_held": 60,
    "lease_lost": 15,
    # A person must free space.
    "no_space": 600,
    "io": 60,
    "source_changed": 60,
    "checksum_mismatch": 15,
    "short_read": 60,
    "limit_exceeded": 60,
}
"""Seconds before the first retry, by kind of error (estimated, not measured)."""
OTHER_SECONDS = 60
LONGEST_SECONDS = 1800


def delay(kind: str, try_number: int) -> timedelta:
    """Return the pause before the next try. The pause doubles with each try.

    :param kind: the kind of error, a word of :data:`dray.errors.ErrorKind`.
    :param try_number: number of the failed try, from 1 on.
    """
    seconds = WAITS.get(kind, OTHER_SECONDS) * 2 ** min(max(try_number, 1) - 1, 10)
    return timedelta(seconds=min(seconds, LONGEST_SECONDS))


class DrayRetryPolicy(RetryPolicy):
    """Chooses the pause before the next try by the kind of error.

    Permanent errors are not retried (docs/reference/airflow.md).
    """

    def __init__(self) -> None:
        """Check the Airflow version.

        :raises RuntimeError: if Airflow is older than 3.3, because it then has no retry policies.
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
        """Decide about one failure. For errors of other code, the task's own settings apply."""
        del max_tries, context
        kind = getattr(exception, "kind", None)
        if not isinstance(kind, str):
            return RetryDecision.default()
        wait = delay(kind, try_number)
        word = kind.replace("_", " ")
        return RetryDecision.retry(wait, f"{word}: next try in {wait.total_seconds():.0f} s")

    def serialize(self) -> dict[str, Any]:
        """Return the serialised form, which is empty because the policy has no parameters."""
        return {}
