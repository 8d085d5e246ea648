"""Sensors for files and transfers."""
