"""For tests: real endpoints, faults, and a scripted endpoint that runs inside the test.

:mod:`dray.testing.plugin` has the fixtures for pytest. The other modules of dray do not import this
package.
"""
