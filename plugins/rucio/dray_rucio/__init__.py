"""The transfertool with which Rucio's conveyor uses dray.

The requests of a replication rule become transfers of endpoints. The endpoint of a file's
destination copies the file from one of the file's replicas. Rucio retries failed transfers, and
every try resumes from the durable data at the destination.

- :mod:`dray_rucio.register` registers the transfertool in Rucio. :mod:`dray_rucio.policy` is a
  policy package that registers the transfertool in every process of Rucio.
- :mod:`dray_rucio.transfertool` is called by Rucio. :mod:`dray_rucio.report` has the results that
  Rucio reads.
- :mod:`dray_rucio.routing` selects endpoints or Globus for each transfer. :mod:`dray_rucio.globus`
  passes transfers between collections to the Globus Transfer service.
- :mod:`dray_rucio.sending` submits a transfer of one or several files. :mod:`dray_rucio.staging`
  stages files of tape RSEs.
- :mod:`dray_rucio.submission`, :mod:`dray_rucio.groups` and :mod:`dray_rucio.places` convert
  requests and paths. None of these modules imports Rucio.
- :mod:`dray_rucio.why` explains why the files of a rule do not move, and when they will be at
  their destinations. :mod:`dray_rucio.reading` reads the :mod:`dray_rucio.facts` from Rucio.
  :mod:`dray_rucio.causes` and :mod:`dray_rucio.eta` contain pure functions.
- :mod:`dray_rucio.settings` and :mod:`dray_rucio.hosts` contain the endpoints and the credentials
  for these endpoints.
"""

from __future__ import annotations

__all__: list[str] = []
