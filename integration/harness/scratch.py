"""Folders for tests whose servers run as other users or write gigabytes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["scratch_folder"]


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder in ``DRAY_TEST_DIR``, and remove it at the end of the context.

    pytest's own folders are not used: pytest keeps them for three runs, and other users cannot
    enter them.
    """
    folder = Path(tempfile.mkdtemp(prefix="dray-test-", dir=os.environ.get("DRAY_TEST_DIR")))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
