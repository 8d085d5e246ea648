"""What the integration tests stand on: processes, trees, a proxy, a watcher; none of it dray's."""
