"""Deadlines of a DAG run, carried back to its transfers."""
