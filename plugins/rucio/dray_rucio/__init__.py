"""dray behind Rucio: a transfertool, to which the conveyor hands what its rules ask for.

A replication rule becomes transfers of endpoints: each file's destination is asked to fetch it
from its replicas. Rucio retries, and dray goes on from what is safe at the destination, whichever
try it is.

- :mod:`dray_rucio.register` tells Rucio of it; :mod:`dray_rucio.policy` does so in its own daemons.
- :mod:`dray_rucio.transfertool` is what Rucio calls; :mod:`dray_rucio.report` what it reads.
- :mod:`dray_rucio.submission` and :mod:`dray_rucio.places` translate, and load nothing of Rucio's.
- :mod:`dray_rucio.settings` and :mod:`dray_rucio.hosts`: whom to ask, and by which right.
"""

from __future__ import annotations

__all__: list[str] = []
