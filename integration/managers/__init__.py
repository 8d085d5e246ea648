"""A bed in which Airflow, Rucio, XRootD servers, the FTS service and endpoints work together."""
