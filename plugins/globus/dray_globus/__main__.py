"""``python -m dray_globus``: submit, show, cancel and wait from a terminal or a script."""

from __future__ import annotations

import sys

from dray_globus.cli import main

if __name__ == "__main__":
    sys.exit(main())
