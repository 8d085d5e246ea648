"""Loads the fixtures of dray's pytest plug-in, also if dray is not installed."""

pytest_plugins = ["dray.testing.plugin"]
