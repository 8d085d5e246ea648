"""Helpers of the integration tests, independent of dray: processes, trees, disks, a watcher."""
