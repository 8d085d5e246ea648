"""The exception classes.

``DrayError`` is the base. An invalid call raises a :class:`DrayUsageError`; of the other errors, a
:class:`DrayTemporaryError` may go away by itself and a :class:`DrayPermanentError` will not.
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
]
"""The kind of the error, in one word."""

Status = Literal["permanent", "temporary", "exhausted"]
"""The chance of a retry; ``exhausted`` is temporary with all tries of this run used up."""

End = Literal["source", "sink", "network", "here"]
"""Place of the error; ``here`` is this process, before either end was called."""


class ErrorFields(TypedDict):
    """The fields of an error apart from its message; see :class:`DrayError`."""

    kind: ErrorKind
    status: Status
    end: End
    operation: str
    file: str | None
    cause: str
    remedy: str


class DrayError(Exception):
    """An error of dray; as text, one line with all its attributes."""

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
        """Make an error; the engine does, and tests may.

        :param message: the whole line.
        :param kind: the kind of the error.
        :param status: whether a retry can help.
        :param end: where it occurred.
        :param operation: the failed operation, as an infinitive.
        :param file: the file, relative to the transfer's root, as :func:`os.fsdecode` decodes it.
        :param cause: the cause; may be empty.
        :param remedy: the remedy; may be empty.
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
    """A later try may work: a busy device, another transfer writing to the same place."""


class DrayPermanentError(DrayError):
    """The same call fails in the same way until a person acts."""


class DrayNotAdmittedError(DrayPermanentError):
    """An endpoint cannot promise the requested deadline or rate; nothing was queued.

    :ivar admission: the conflict, and the promise that is possible instead: ``earliest_finish``,
        ``rate_needed`` and ``rate_available`` in bytes per second, ``obstacle``, ``reasons``.
    """

    def __init__(
        self, message: str, *, admission: AdmissionVerdict, **fields: Unpack[ErrorFields]
    ) -> None:
        """Make an error; a client does, and tests may.

        :param admission: the conflict and the possible promise; the others as of
            :class:`DrayError`.
        """
        super().__init__(message, **fields)
        self.admission = admission


class DrayUsageError(DrayError, ValueError):
    """The call is invalid; nothing was done."""


def _rebuild(of: type[DrayError], message: str, fields: dict[str, Any]) -> DrayError:
    # Not through __init__: each class has its own, and all attributes are given here.
    error = of.__new__(of, message)
    error.message = message
    # Also attributes that other code has added, for example notes.
    error.__dict__.update(fields)
    return error
