"""dray behind Rucio: a transfertool that gets the requests of rules from the conveyor.

A replication rule becomes transfers of endpoints: the endpoint of each file's destination fetches
it from its replicas. Rucio retries, and every try resumes from the durable data at the destination.

- :mod:`dray_rucio.register` registers it with Rucio; :mod:`dray_rucio.policy` does so in its
  daemons.
- :mod:`dray_rucio.transfertool` is called by Rucio; :mod:`dray_rucio.report` is read by it.
- :mod:`dray_rucio.submission` and :mod:`dray_rucio.places` translate, and load nothing of Rucio.
- :mod:`dray_rucio.settings` and :mod:`dray_rucio.hosts`: the endpoints, and the credentials for
  them.
"""

from __future__ import annotations

__all__: list[str] = []
