"""The connection of tasks to endpoints."""
