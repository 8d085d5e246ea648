"""Throughput beside other movers: the same data, machine and hour, in turns."""
