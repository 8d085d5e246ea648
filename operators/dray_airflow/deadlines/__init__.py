"""The deadline of a DAG run, and the deadlines of its transfers, derived from the run's."""
