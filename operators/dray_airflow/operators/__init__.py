"""Operators that call endpoints."""
