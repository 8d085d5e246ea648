"""A policy package of Rucio that only registers the transfertool in every process of Rucio.

Enable it with ``[policy] package = dray_rucio.policy`` in ``rucio.cfg``, or with
``RUCIO_POLICY_PACKAGE``. A site with its own policy package calls
:func:`dray_rucio.register.install` in its ``__init__``.
"""

from __future__ import annotations

from typing import Any

from dray_rucio.register import install

__all__ = ["SUPPORTED_VERSION", "get_algorithms"]

SUPPORTED_VERSION = [">=38"]
"""Supported versions of Rucio. Rucio refuses a package that does not list its version."""

install()


def get_algorithms() -> dict[str, dict[str, Any]]:
    """Return no algorithms, so that Rucio keeps its own."""
    return {}
