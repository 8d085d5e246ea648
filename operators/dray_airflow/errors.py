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

__all__ = [
    "DrayTaskFailure",
    "DrayTaskRetry",
    "bad_input",
    "of_error",
    "of_transfer",
    "one_line",
    "translated",
]

MESSAGE_CHARACTERS_MAX = 2000


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


def of_error(error: DrayError, about: str = "") -> DrayTaskFailure | DrayTaskRetry:
    """Translate an error.

    :param about: which transfer or connection, in front of the message.
    """
    message = f"{about}: {error.message}" if about else error.message
    of = DrayTaskFailure if error.status == "permanent" else DrayTaskRetry
    return of(message, error.kind)


@contextlib.contextmanager
def translated(about: str = "") -> Iterator[None]:
    """Translate what is raised within.

    :param about: as of :func:`of_error`.
    """
    from dray.errors import DrayError

    try:
        yield
    except DrayError as error:
        # Without the chain: the log's reader needs the line and no two traces.
        raise of_error(error, about) from None


def of_transfer(
    transfer: Transfer, failed: Sequence[FileOutcome] = ()
) -> DrayTaskFailure | DrayTaskRetry | None:
    """Say how the task ends for a transfer that has ended; ``None``: well.

    :param failed: files that failed, if it is ``incomplete``; as many as were looked at.
    """
    about = f"transfer {transfer.id}"
    if transfer.state == "done":
        return None
    if transfer.state == "cancelled":
        why = f" ({transfer.error.message})" if transfer.error is not None else ""
        return DrayTaskFailure(
            f"{about} was cancelled{why}; what is safe is kept: clear the task to go on from there",
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
