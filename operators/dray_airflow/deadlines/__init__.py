"""Deadlines of a DAG run, and the deadlines of its transfers that follow from them."""
