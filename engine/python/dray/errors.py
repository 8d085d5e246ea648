"""The exception classes.

``DrayError`` is the base class. An invalid call raises a :class:`DrayUsageError`. A
:class:`DrayTemporaryError` may disappear without any action, and a :class:`DrayPermanentError` will
not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from dray.client import AdmissionVerdict

__all__ = [
    "DrayError",
    "DrayNotAdmittedError",
    "DrayPermanentError",
    "DrayTemporaryError",
    "DrayUsageError",
    "End",
    "ErrorKind",
    "Status",
]

ErrorKind = Literal[
    "other",
    "not_found",
    "permission_denied",
    "is_a_directory",
    "not_a_directory",
    "already_exists",
    "no_space",
    "read_only",
    "name_too_long",
    "path_escapes",
    "invalid_name",
    "invalid_request",
    "unsupported",
    "source_changed",
    "checksum_mismatch",
    "short_read",
    "log_version",
    "log_damaged",
    "lease_held",
    "lease_lost",
    "protocol",
    "limit_exceeded",
    "incompatible_peer",
    "unauthorized",
    "unreachable",
    "timed_out",
    "cancelled",
    "io",
    "busy",
    "internal",
    "not_admitted",
    "no_place",
    "nothing_matched",
    "unattended",
]
"""The kind of the error, in one word."""

Status = Literal["permanent", "temporary", "exhausted"]
"""Tells if a retry can help. ``exhausted`` is a temporary error after all tries of this run."""

End = Literal["source", "sink", "network", "here"]
"""The place of the error. ``here`` is this process, before it calls a source or a sink."""


class ErrorFields(TypedDict):
    """The fields of an error, without its message. See :class:`DrayError`."""

    kind: ErrorKind
    status: Status
    end: End
    operation: str
    file: str | None
    cause: str
    remedy: str


class DrayError(Exception):
    """An error of dray. :class:`str` returns one line that contains all attributes of the error.

    :ivar retry_after_seconds: time after which the service accepts the call again, if the service
        has reported it.
    """

    retry_after_seconds: float | None = None

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind,
        status: Status,
        end: End,
        operation: str,
        file: str | None,
        cause: str,
        remedy: str,
    ) -> None:
        """Create an error. Only the engine and tests create errors.

        :param message: the line that :class:`str` returns.
        :param kind: the kind of the error.
        :param status: tells if a retry can help.
        :param end: the end at which the error occurred.
        :param operation: the failed operation, as an infinitive.
        :param file: the file, relative to the transfer's root, as :func:`os.fsdecode` decodes it.
        :param cause: the cause, or an empty text.
        :param remedy: the remedy, or an empty text.
        """
        super().__init__(message)
        self.message = message
        self.kind: ErrorKind = kind
        self.status: Status = status
        self.end: End = end
        self.operation = operation
        self.file = file
        self.cause = cause
        self.remedy = remedy

    def __reduce__(self) -> tuple[Callable[..., DrayError], tuple[object, ...]]:
        """Support copying and pickling."""
        fields = dict(self.__dict__)
        return _rebuild, (type(self), fields.pop("message"), fields)


class DrayTemporaryError(DrayError):
    """A later try may succeed. Examples: a busy device, or another transfer to the same place."""


class DrayPermanentError(DrayError):
    """The same call fails in the same way until a person removes the cause."""


class DrayNotAdmittedError(DrayPermanentError):
    """An endpoint cannot promise the requested deadline or rate. No transfer was queued.

    :ivar admission: the conflict, and the promise that is possible instead: ``earliest_finish``,
        ``rate_needed`` and ``rate_available`` in bytes per second, ``obstacle``, ``reasons``.
    """

    def __init__(
        self, message: str, *, admission: AdmissionVerdict, **fields: Unpack[ErrorFields]
    ) -> None:
        """Create an error. Clients and tests call this.

        :param admission: the conflict and the possible promise. The other arguments are those of
            :class:`DrayError`.
        """
        super().__init__(message, **fields)
        self.admission = admission


class DrayUsageError(DrayError, ValueError):
    """The call is invalid, and no work was done."""


def _rebuild(of: type[DrayError], message: str, fields: dict[str, Any]) -> DrayError:
    # Not created through `__init__`, because its arguments differ between the classes. All
    # attributes are set here.
    error = of.__new__(of, message)
    error.message = message
    # ``fields`` may include attributes that other code has added, such as notes.
    error.__dict__.update(fields)
    return error
