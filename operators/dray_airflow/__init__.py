"""The Airflow provider for DAGs that move data with dray.

Tasks call endpoints, and endpoints move the data. No data passes through a worker or the triggerer.
Importing this package, or one of its modules in a DAG file, loads neither the native module nor an
HTTP client.
"""

from __future__ import annotations
