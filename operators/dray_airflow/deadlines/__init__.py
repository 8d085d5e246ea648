"""Deadlines of a DAG run, propagated back to its transfers."""
