"""Convert errors of dray and of Rucio to errors of Airflow.

Airflow does not retry permanent errors. No other module converts errors. Each message is one line
with the file, the failed end (source or destination), the cause and the remedy.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dray_airflow.version_compat import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dray.client import FileOutcome, Transfer
    from dray.errors import DrayError
    from dray_airflow.hooks.dray import Settings

__all__ = [
    "DrayTaskFailure",
    "DrayTaskRetry",
    "bad_input",
    "is_unattended",
    "of_error",
    "of_rucio",
    "of_transfer",
    "one_line",
    "translated",
    "translated_rucio",
]

MESSAGE_CHARACTERS_MAX = 2000
RUCIO_KINDS = {
    "AccessDenied": "permission_denied",
    "AccountNotFound": "not_found",
    "CannotAuthenticate": "unauthorized",
    "CannotAuthorize": "permission_denied",
    "DataIdentifierNotFound": "not_found",
    "InputValidationError": "invalid_request",
    "InsufficientTargetRSEs": "invalid_request",
    "InvalidObject": "invalid_request",
    "InvalidReplicationRule": "invalid_request",
    "InvalidRSEExpression": "invalid_request",
    "InvalidRuleWeight": "invalid_request",
    "InvalidSourceReplicaExpression": "invalid_request",
    "InvalidValueForKey": "invalid_request",
    "ManualRuleApprovalBlocked": "permission_denied",
    "MissingClientParameter": "invalid_request",
    "RSENotFound": "not_found",
    "RuleNotFound": "not_found",
    "ScopeNotFound": "not_found",
    "ScratchDiskLifetimeConflict": "invalid_request",
    "StagingAreaRuleRequiresLifetime": "invalid_request",
    "UnsupportedOperation": "unsupported",
}
"""Permanent errors of Rucio by class, and their kinds.

All other errors are temporary: a full quota, a read-only RSE, an unreachable server.
"""
RUCIO_REMEDIES = {
    "InsufficientAccountLimit": "raise the account's limit, or delete rules of the account",
    "RSEOverQuota": "free space at the RSE, or raise the quota of the RSE",
    "RSEWriteBlocked": "make the RSE writable, or set ignore_availability",
}


class DrayTaskFailure(AirflowFailException):
    """A permanent error. The task fails immediately, regardless of ``retries``.

    :param kind: the kind of error, a word of :data:`dray.errors.ErrorKind`.
    """

    def __init__(self, message: str, kind: str = "other") -> None:
        """Store the message, shortened to one line."""
        super().__init__(one_line(message))
        self.kind = kind


class DrayTaskRetry(AirflowException):
    """A temporary error. A later try may succeed, and resumes from durable data.

    :param kind: the kind of error, a word of :data:`dray.errors.ErrorKind`.
    """

    def __init__(self, message: str, kind: str = "other") -> None:
        """Store the message, shortened to one line."""
        super().__init__(one_line(message))
        self.kind = kind


def one_line(text: str) -> str:
    """Convert a text to one line, cut to ``MESSAGE_CHARACTERS_MAX`` characters."""
    line = " ".join(text.split())
    if len(line) > MESSAGE_CHARACTERS_MAX:
        return f"{line[: MESSAGE_CHARACTERS_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
    return line


def bad_input(what: str, cause: str, remedy: str) -> DrayTaskFailure:
    """Return the error for an invalid argument of the task."""
    return DrayTaskFailure(f"cannot {what}: {cause}; {remedy}", "invalid_request")


def of_error(
    error: DrayError, about: str = "", settings: Settings | None = None
) -> DrayTaskFailure | DrayTaskRetry:
    """Convert an error.

    :param about: text before the message: the transfer or the connection.
    :param settings: settings of the connection that was used. If its token has expired, a refusal
        of the token is a temporary error, because the next try may find a new token.
    """
    message = f"{about}: {error.message}" if about else error.message
    if error.kind == "unauthorized" and settings is not None:
        expired = settings.token_expired_at()
        if expired is not None:
            return DrayTaskRetry(
                f"{message}; the token of connection {settings.conn_id!r} expired at"
                f" {expired.isoformat(timespec='seconds')}: renew it",
                error.kind,
            )
    error_class = DrayTaskFailure if error.status == "permanent" else DrayTaskRetry
    return error_class(message, error.kind)


@contextlib.contextmanager
def translated(about: str = "", settings: Settings | None = None) -> Iterator[None]:
    """Convert errors that the code in the context raises.

    :param about: as for :func:`of_error`.
    :param settings: as for :func:`of_error`.
    """
    from dray.errors import DrayError

    try:
        yield
    except DrayError as error:
        # Omit the chain of exceptions, because a reader of the log needs the line and not two
        # traces.
        raise of_error(error, about, settings) from None


def is_unattended(transfer: Transfer) -> bool:
    """Return true if an endpoint cancelled a transfer because its ``bound_seconds`` had passed.

    The bound is the time after which an endpoint cancels a transfer that no caller has queried.
    """
    if transfer.state != "cancelled" or transfer.error is None:
        return False
    return transfer.error.kind == "unattended"


def of_transfer(
    transfer: Transfer, failed: Sequence[FileOutcome] = ()
) -> DrayTaskFailure | DrayTaskRetry | None:
    """Return the error of a transfer that has ended. ``None`` if it has succeeded.

    :param failed: some of the failed files, if the transfer is ``incomplete``.
    """
    about = f"transfer {transfer.id}"
    if transfer.state == "done":
        return None
    if is_unattended(transfer):
        return DrayTaskRetry(
            f"{about} was cancelled because no caller asked the endpoint about it within "
            "bound_seconds; durable data is kept, and a retry resumes",
            "cancelled",
        )
    if transfer.state == "cancelled":
        why = f" ({transfer.error.message})" if transfer.error is not None else ""
        return DrayTaskFailure(
            f"{about} was cancelled{why}; durable data is kept: clear the task to resume",
            "cancelled",
        )
    if transfer.error is not None:
        return of_error(transfer.error, about)
    errors = [each.error for each in failed if each.error is not None]
    errors = errors or [each.error for each in transfer.failures]
    if not errors:
        return DrayTaskRetry(
            f"{about} is {transfer.state}, but the endpoint reports no error; check the "
            "endpoint's log"
        )
    # If at least one file may succeed later, a retry is useful. Finished files are not sent again.
    temporary = [error for error in errors if error.status != "permanent"]
    first = (temporary or errors)[0]
    count = f"{transfer.files.failed} of {transfer.files.listed} files failed"
    error_class = DrayTaskRetry if temporary else DrayTaskFailure
    return error_class(f"{about}: {count}; first error: {first.message}", first.kind)


def of_rucio(error: Exception, about: str) -> DrayTaskFailure | DrayTaskRetry:
    """Convert an error of Rucio's client.

    :param about: text before the message: the operation and the server.
    """
    name = type(error).__name__
    remedy = RUCIO_REMEDIES.get(name)
    message = f"cannot {about}: {name}: {error}" + (f"; {remedy}" if remedy else "")
    kind = RUCIO_KINDS.get(name)
    return DrayTaskRetry(message) if kind is None else DrayTaskFailure(message, kind)


@contextlib.contextmanager
def translated_rucio(about: str) -> Iterator[None]:
    """Convert errors of Rucio's client that the code in the context raises.

    :param about: as for :func:`of_rucio`.
    """
    from rucio.common.exception import RucioException

    try:
        yield
    except (RucioException, OSError) as error:
        # Errors of the library ``requests`` are OSErrors.
        raise of_rucio(error, about) from None
