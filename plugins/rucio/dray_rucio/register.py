"""Register the transfertool in Rucio's table, for which Rucio has no setting.

Rucio cancels transfers, and changes their priority, with the class of FTS, whichever tool carries
them. So that class is replaced, in the one module that does so, by one that checks the host.
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
SCHEME = "dray://"


def register() -> None:
    """Register the transfertool in this process. A repetition changes nothing."""
    from rucio.core import transfer

    from dray_rucio.transfertool import NAME, DrayTransfertool

    # Other modules hold this very table: it is extended, not replaced.
    table: dict[str, Any] = transfer.TRANSFERTOOL_CLASSES_BY_NAME
    table.setdefault(NAME, DrayTransfertool)
    usual = transfer.FTS3Transfertool
    if getattr(usual, "is_drays", False):
        return

    class ByHost(usual):  # type: ignore[misc, valid-type]
        """The class of FTS, except for hosts that are endpoints of dray."""

        is_drays = True

        def __new__(cls, external_host: str, *words: Any, **named: Any) -> Any:  # noqa: ANN401
            if str(external_host).startswith(SCHEME):
                return DrayTransfertool(external_host, named.get("logger", logging.log))
            return super().__new__(cls)

    transfer.FTS3Transfertool = ByHost


def install() -> None:
    """Register it as soon as Rucio has loaded the module with the table.

    For packages that Rucio loads before that, or during it, when an import here would be circular.
    """
    if _is_loaded():
        register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _is_loaded() -> bool:
    """Return whether the module is loaded completely."""
    spec = getattr(sys.modules.get(MODULE), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the one module as the system does, and registers once it is loaded.

    If the module is being loaded already, registration waits until the next import.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find it; see :class:`importlib.abc.MetaPathFinder`."""
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
    """Loads as another loader does, and registers then."""

    def __init__(self, usual: importlib.abc.Loader, finder: _Finder) -> None:
        self._usual = usual
        self._finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._usual.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._usual.exec_module(module)
        # Only now: a module that failed to load is loaded again.
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        register()
