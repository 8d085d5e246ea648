"""The link from a task's page to its transfer."""
