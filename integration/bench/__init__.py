"""The benchmark: dray and other movers copy the same data on the same machine, in turns."""
