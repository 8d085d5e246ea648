"""The Airflow provider for DAGs that move data with dray.

Tasks call endpoints, and endpoints move the data. No data passes through a worker or the triggerer.
If a DAG file imports this package or its modules, Python loads neither the native module of dray
nor an HTTP client.
"""

from __future__ import annotations
