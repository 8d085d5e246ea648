"""The package's own plug-in, also if the package is not installed but run from the tree."""

pytest_plugins = ["dray.testing.plugin"]
