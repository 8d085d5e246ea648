"""Object-level transfers of scientific data: the Python face of the dray engine.

Everything a caller may rely on is named in ``__all__``. The heavy work is done by the native module
``dray._native``, which is private.
"""

from dray._native import version
from dray.checksums import Sums, checksum, combine

__all__ = ["Sums", "__version__", "checksum", "combine", "version"]

__version__ = version()
