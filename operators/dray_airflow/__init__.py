"""The Airflow provider: DAGs that move data with dray.

Bytes never pass through a worker or the triggerer: tasks ask endpoints, endpoints carry. Importing
this package, or a module of it in a DAG file, loads neither the native module nor a HTTP client.
"""

from __future__ import annotations
