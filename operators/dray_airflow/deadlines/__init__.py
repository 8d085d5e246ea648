"""Derive the deadlines of a run's transfers from the deadline of the DAG run."""
