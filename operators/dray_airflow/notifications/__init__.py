"""Notifications about failed and late runs."""
