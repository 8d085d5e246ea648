"""The policy package of a VO of a Rucio in multi-VO mode. It only registers the transfertool.

Enable it with ``[policy] package-VO = dray_rucio.vo_policy`` in ``rucio.cfg``. In this mode Rucio
41.5 refuses a package without a module ``permission``, so :mod:`dray_rucio.policy` cannot be used.
"""

from __future__ import annotations

from dray_rucio.policy import SUPPORTED_VERSION, get_algorithms

__all__ = ["SUPPORTED_VERSION", "get_algorithms"]
