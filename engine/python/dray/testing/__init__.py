"""For tests: endpoints to start, faults to make, and a scripted one that needs no program.

:mod:`dray.testing.plugin` brings fixtures to pytest. Nothing here is loaded by the rest of dray.
"""
