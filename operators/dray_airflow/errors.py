"""Errors of dray as Airflow's: what will not go away fails at once, the rest is tried again.

The only place where one becomes the other. Each message is one line: which file, which end, what
the cause is, what to do.
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
    "is_forsaken",
    "of_error",
    "of_transfer",
    "one_line",
    "translated",
]

MESSAGE_CHARACTERS_MAX = 2000
FORSAKEN = "nobody has asked for it in "
"""Beginning of an endpoint's notice (``queue/run.rs``); a test compares the two."""


class DrayTaskFailure(AirflowFailException):
    """The same try would fail the same way: the task fails now, whatever ``retries`` says.

    :param kind: what went wrong, a word of :data:`dray.errors.ErrorKind`.
    """

    def __init__(self, message: str, kind: str = "other") -> None:
        """Make one; the message becomes one line."""
        super().__init__(one_line(message))
        self.kind = kind


class DrayTaskRetry(AirflowException):
    """A later try may work, and goes on from what is safe.

    :param kind: what went wrong, a word of :data:`dray.errors.ErrorKind`.
    """

    def __init__(self, message: str, kind: str = "other") -> None:
        """Make one; the message becomes one line."""
        super().__init__(one_line(message))
        self.kind = kind


def one_line(text: str) -> str:
    """Make one line of a text, so long that a log shows it whole."""
    line = " ".join(text.split())
    if len(line) > MESSAGE_CHARACTERS_MAX:
        return f"{line[: MESSAGE_CHARACTERS_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
    return line


def bad_input(what: str, cause: str, remedy: str) -> DrayTaskFailure:
    """Say that the task was given something that cannot work."""
    return DrayTaskFailure(f"cannot {what}: {cause}; {remedy}", "invalid_request")


def of_error(
    error: DrayError, about: str = "", settings: Settings | None = None
) -> DrayTaskFailure | DrayTaskRetry:
    """Translate an error.

    :param about: which transfer or connection, in front of the message.
    :param settings: of the connection that was used: a token that has expired may be renewed by the
        next try, one that is refused otherwise will not.
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
    of = DrayTaskFailure if error.status == "permanent" else DrayTaskRetry
    return of(message, error.kind)


@contextlib.contextmanager
def translated(about: str = "", settings: Settings | None = None) -> Iterator[None]:
    """Translate what is raised within.

    :param about: as of :func:`of_error`.
    :param settings: as of :func:`of_error`.
    """
    from dray.errors import DrayError

    try:
        yield
    except DrayError as error:
        # Without the chain: the log's reader needs the line and no two traces.
        raise of_error(error, about, settings) from None


def is_forsaken(transfer: Transfer) -> bool:
    """Whether an endpoint has cancelled a transfer because nobody asked for it within its bound.

    The endpoint reports it in a notice; a transfer that was started again has no notices of earlier
    attempts.
    """
    return transfer.state == "cancelled" and any(
        notice.startswith(FORSAKEN) for notice in transfer.notices
    )


def of_transfer(
    transfer: Transfer, failed: Sequence[FileOutcome] = ()
) -> DrayTaskFailure | DrayTaskRetry | None:
    """Say how the task ends for a transfer that has ended; ``None``: well.

    :param failed: files that failed, if it is ``incomplete``; as many as were looked at.
    """
    about = f"transfer {transfer.id}"
    if transfer.state == "done":
        return None
    if is_forsaken(transfer):
        return DrayTaskRetry(
            f"{about} was cancelled because nobody asked for it within its bound; durable data is"
            " kept, and a retry resumes",
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
        return DrayTaskRetry(f"{about} is {transfer.state} and does not say why; look at its log")
    # One file that a later try may bring is worth one; the rest is not sent again.
    temporary = [error for error in errors if error.status != "permanent"]
    first = (temporary or errors)[0]
    count = f"{transfer.files.failed} of {transfer.files.listed} files failed"
    of = DrayTaskRetry if temporary else DrayTaskFailure
    return of(f"{about}: {count}; the first: {first.message}", first.kind)
