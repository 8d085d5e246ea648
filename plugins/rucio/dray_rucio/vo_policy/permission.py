"""Rucio's own permissions in multi-VO mode."""

from __future__ import annotations

from rucio.core.permission.generic_multi_vo import has_permission

__all__ = ["has_permission"]
