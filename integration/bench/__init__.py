"""Throughput beside other movers: the same data, machine and hour, everything by turns."""
