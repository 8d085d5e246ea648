"""Repetitions of published experiments, and the pages and pictures with their results."""
