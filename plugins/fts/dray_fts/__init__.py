"""A service that speaks the REST API of FTS3 and drives endpoints of dray.

Clients of FTS, and Rucio with its own transfertool for FTS, submit jobs to this service. The
service submits a transfer to an endpoint for each file of a job.

- :mod:`dray_fts.sites`, :mod:`dray_fts.jobs` and :mod:`dray_fts.states` do no I/O. They convert
  URLs to places and submissions to jobs, and compute the states of jobs.
- :mod:`dray_fts.database` stores jobs. :mod:`dray_fts.shapes` converts jobs to the JSON of FTS.
- :mod:`dray_fts.endpoints` calls endpoints. :mod:`dray_fts.driver` moves the files of jobs.
- :mod:`dray_fts.people` and :mod:`dray_fts.tls` find out who calls.
- :mod:`dray_fts.app`, :mod:`dray_fts.job_calls`, :mod:`dray_fts.delegation` and
  :mod:`dray_fts.refused` are the calls of the REST API.
"""

from __future__ import annotations

__all__: list[str] = []
