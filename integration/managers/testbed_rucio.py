"""Prepare the Rucio of the test bed in containers: ``database`` makes tables, ``rses`` the RSEs.

The services ``rucio-init`` and ``rucio-rses`` of docker/testbed.yaml run this module once, with the
Python of Rucio.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from integration.rucio.contents import make_database, make_rses

#: The Python of Rucio cannot import :mod:`integration.managers.testbed_init`.
RSES = Path("/facts/rucio-client/rses.json")


def main(what: str) -> None:
    """Make the tables, or the RSEs."""
    if what == "database":
        make_database()
    else:
        make_rses(json.loads(RSES.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(sys.argv[1])
