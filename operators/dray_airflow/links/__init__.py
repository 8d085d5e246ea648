"""Where a task's page leads to."""
