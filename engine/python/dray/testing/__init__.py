"""For tests: real endpoints, faults, and a scripted endpoint that needs no program.

:mod:`dray.testing.plugin` brings fixtures to pytest. The rest of dray loads nothing of this
    package.
"""
