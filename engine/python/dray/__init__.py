"""Object-level transfers of scientific data: the Python face of the dray engine.

Everything a caller may rely on is named in ``__all__``. The heavy work is done by the native module
``dray._native``, which is private.
"""

from dray._native import version
from dray.checksums import Summer, Sums, checksum, combine
from dray.errors import DrayError, DrayPermanentError, DrayTemporaryError, DrayUsageError
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

__all__ = [
    "DoneRange",
    "DrayError",
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

__version__ = version()
