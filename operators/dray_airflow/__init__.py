"""The Airflow provider: DAGs that move data with dray.

Bytes never pass through a worker or the triggerer: tasks call endpoints, and endpoints move the
data. Importing this package, or a module of it in a DAG file, loads neither the native module nor
an HTTP client.
"""

from __future__ import annotations
