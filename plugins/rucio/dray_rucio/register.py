"""Register the transfertool in Rucio's table. Rucio has no setting for this.

Rucio always uses the class of FTS to cancel transfers and to change their priority, even if another
tool submitted them. So this module replaces the class of FTS in Rucio's module that cancels and
changes transfers. The replacement selects the tool by the host of the transfer.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["install", "register"]

MODULE = "rucio.core.transfer"
SCHEMES = ("dray://", "globus://")


def register() -> None:
    """Register the transfertool in this process. Calling this again changes nothing."""
    from rucio.core import transfer

    from dray_rucio.routing import RoutingTransfertool
    from dray_rucio.transfertool import NAME

    # Other modules have references to this table, so it is extended and not replaced.
    table: dict[str, Any] = transfer.TRANSFERTOOL_CLASSES_BY_NAME
    table.setdefault(NAME, RoutingTransfertool)
    usual = transfer.FTS3Transfertool
    if getattr(usual, "is_drays", False):
        return

    class ByHost(usual):  # type: ignore[misc, valid-type]
        """Creates the tool for FTS, or dray's tool for an external host of dray or Globus."""

        is_drays = True

        def __new__(cls, external_host: str, *words: Any, **named: Any) -> Any:  # noqa: ANN401
            if str(external_host).startswith(SCHEMES):
                return RoutingTransfertool(external_host, named.get("logger", logging.log))
            return super().__new__(cls)

    transfer.FTS3Transfertool = ByHost


def install() -> None:
    """Register the transfertool as soon as Rucio has loaded the module :data:`MODULE`.

    Packages that Rucio loads before that module, or during its load, call this function. If such a
    package imported the module, the import would be circular.
    """
    _permit_scheme()
    if _is_loaded():
        register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _permit_scheme() -> None:
    """Add the scheme of the RSE protocol to those for which Rucio's server returns URLs.

    Rucio's command ``rucio download`` asks for the URLs of these schemes.
    """
    from rucio.common.constants import SUPPORTED_PROTOCOLS

    from dray_rucio.places import PROTOCOL_SCHEME

    if PROTOCOL_SCHEME not in SUPPORTED_PROTOCOLS:
        # Other modules have references to this list, so it is extended and not replaced.
        SUPPORTED_PROTOCOLS.append(PROTOCOL_SCHEME)


def _is_loaded() -> bool:
    """Return true if Rucio's module with the table is loaded completely."""
    spec = getattr(sys.modules.get(MODULE), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds :data:`MODULE`, and registers the transfertool after this module is loaded.

    :data:`MODULE` contains Rucio's table of transfertools. If :data:`MODULE` is already being
    loaded, the registration waits for the first import after the load.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module. See :class:`importlib.abc.MetaPathFinder`."""
        if name != MODULE:
            if _is_loaded():
                sys.meta_path.remove(self)
                register()
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads a module with another loader, and then registers the transfertool."""

    def __init__(self, usual: importlib.abc.Loader, finder: _Finder) -> None:
        self._usual = usual
        self._finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._usual.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._usual.exec_module(module)
        # Removed only after the load, because a module that failed to load is loaded again.
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        register()
