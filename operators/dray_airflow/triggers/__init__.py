"""Triggers that wait in the triggerer."""
