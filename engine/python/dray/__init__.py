"""Object-level transfers of scientific data: the Python interface of the dray engine.

``__all__`` lists all public names. The native module ``dray._native``, which moves the data, is
private.

A name is imported when it is first used. So a program that only calls endpoints (:class:`Client`)
loads no native code, and a program that only copies loads no HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray._native import version
    from dray.checksums import Summer, Sums, checksum, combine
    from dray.client import AsyncClient, Client
    from dray.errors import (
        DrayError,
        DrayNotAdmittedError,
        DrayPermanentError,
        DrayTemporaryError,
        DrayUsageError,
    )
    from dray.logs import (
        DoneRange,
        LogDamage,
        LoggedFile,
        LogHeader,
        LogReport,
        LostBytes,
        Tenure,
        find_logs,
        read_log,
    )
    from dray.transfer import Event, FailedFile, FileDone, Notice, Progress, TransferResult, copy

    __version__: str

__all__ = [
    "AsyncClient",
    "Client",
    "DoneRange",
    "DrayError",
    "DrayNotAdmittedError",
    "DrayPermanentError",
    "DrayTemporaryError",
    "DrayUsageError",
    "Event",
    "FailedFile",
    "FileDone",
    "LogDamage",
    "LogHeader",
    "LogReport",
    "LoggedFile",
    "LostBytes",
    "Notice",
    "Progress",
    "Summer",
    "Sums",
    "Tenure",
    "TransferResult",
    "__version__",
    "checksum",
    "combine",
    "copy",
    "find_logs",
    "read_log",
    "version",
]

_HOMES = {
    "dray._native": ("version",),
    "dray.checksums": ("Summer", "Sums", "checksum", "combine"),
    "dray.client": ("AsyncClient", "Client"),
    "dray.errors": (
        "DrayError",
        "DrayNotAdmittedError",
        "DrayPermanentError",
        "DrayTemporaryError",
        "DrayUsageError",
    ),
    "dray.logs": (
        "DoneRange",
        "LogDamage",
        "LogHeader",
        "LogReport",
        "LoggedFile",
        "LostBytes",
        "Tenure",
        "find_logs",
        "read_log",
    ),
    "dray.transfer": (
        "Event",
        "FailedFile",
        "FileDone",
        "Notice",
        "Progress",
        "TransferResult",
        "copy",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:
    # Hidden from type checkers. They would otherwise accept any attribute name of this module.

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value = import_module("dray._native").version()
        elif name in _HOME:
            value = getattr(import_module(_HOME[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Stored in the module, so that the next look-up does not call this function.
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
