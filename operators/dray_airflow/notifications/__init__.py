"""Telling people what became of a run."""
