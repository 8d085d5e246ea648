"""Helpers of the integration tests: processes, trees, a proxy, a watcher; independent of dray."""
