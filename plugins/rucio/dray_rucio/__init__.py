"""The transfertool with which Rucio's conveyor uses dray.

A replication rule becomes transfers of endpoints. The endpoint of each file's destination copies
the file from one of its replicas. Rucio retries failed transfers, and every try resumes from the
durable data at the destination.

- :mod:`dray_rucio.register` registers the transfertool in Rucio. :mod:`dray_rucio.policy` does this
  in Rucio's daemons.
- :mod:`dray_rucio.transfertool` is called by Rucio. :mod:`dray_rucio.report` has the results that
  Rucio reads.
- :mod:`dray_rucio.submission` and :mod:`dray_rucio.places` convert requests and paths, and import
  nothing of Rucio.
- :mod:`dray_rucio.settings` and :mod:`dray_rucio.hosts` have the endpoints and the credentials for
  them.
"""

from __future__ import annotations

__all__: list[str] = []
