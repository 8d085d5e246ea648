"""Poll the transfers of one transfertool in short cycles.

``python -m integration.rucio.poll TOOL`` runs in Rucio's environment. Each cycle is one run of
Rucio's poller, because a poller that runs continuously asks for the state of a request at most once
in ten minutes.
"""

from __future__ import annotations

import sys
import time

CYCLE_SECONDS = 1.0


def main(tool: str) -> None:
    """Run Rucio's poller until the process is ended."""
    from rucio.daemons.conveyor import poller

    while True:
        poller.poller(
            once=True,
            partition_wait_time=0,
            older_than=0,
            transfertool=tool,
            filter_transfertool=tool,
        )
        time.sleep(CYCLE_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
