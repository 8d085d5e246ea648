"""The family of errors.

``DrayError`` is the root. What the caller wrote wrongly is a :class:`DrayUsageError`; of the rest,
a :class:`DrayTemporaryError` may go away by itself and a :class:`DrayPermanentError` will not.
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
"""What went wrong, in one word."""

Status = Literal["permanent", "temporary", "exhausted"]
"""Whether trying again can help; ``exhausted`` is temporary with all tries of this run used up."""

End = Literal["source", "sink", "network", "here"]
"""Where it happened; ``here`` is this process, before either end was asked."""


class ErrorFields(TypedDict):
    """What an error says besides its message; see :class:`DrayError`."""

    kind: ErrorKind
    status: Status
    end: End
    operation: str
    file: str | None
    cause: str
    remedy: str


class DrayError(Exception):
    """Something dray could not do; as text, one line with everything that its attributes say."""

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
        :param kind: what went wrong.
        :param status: whether trying again can help.
        :param end: where it happened.
        :param operation: while doing what, as an infinitive.
        :param file: which file, relative to the transfer's root, as :func:`os.fsdecode` gives it.
        :param cause: why, in the words of whoever knows; may be empty.
        :param remedy: what to do about it; may be empty.
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
        """Survive copying, pickling and the way between processes."""
        fields = dict(self.__dict__)
        return _rebuild, (type(self), fields.pop("message"), fields)


class DrayTemporaryError(DrayError):
    """A later try may work: a busy device, another transfer writing to the same place."""


class DrayPermanentError(DrayError):
    """The same try fails the same way until somebody changes something."""


class DrayNotAdmittedError(DrayPermanentError):
    """An endpoint cannot promise a deadline or a rate that was asked for; nothing was queued.

    :ivar admission: what is in the way, and what could be promised instead: ``earliest_finish``,
        ``rate_needed`` and ``rate_available`` in bytes per second, ``obstacle``, ``reasons``.
    """

    def __init__(
        self, message: str, *, admission: AdmissionVerdict, **fields: Unpack[ErrorFields]
    ) -> None:
        """Make one; a client does, and tests may.

        :param admission: what is in the way, and what could be; the others as of
            :class:`DrayError`.
        """
        super().__init__(message, **fields)
        self.admission = admission


class DrayUsageError(DrayError, ValueError):
    """The call makes no sense as it was written; nothing was done."""


def _rebuild(of: type[DrayError], message: str, fields: dict[str, Any]) -> DrayError:
    # Not through __init__: each class has its own, and the attributes are all there.
    error = of.__new__(of, message)
    error.message = message
    # Also what others have attached, notes for instance.
    error.__dict__.update(fields)
    return error
