"""Serialisation of a trigger: its class and its arguments."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["OfFields"]


class OfFields:
    """Serialise a trigger by its arguments; put it before ``BaseTrigger`` among the bases.

    Invariant: ``FIELDS`` are the parameters of the class, each stored under its own name.
    """

    FIELDS: ClassVar[tuple[str, ...]]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments that make an equal trigger."""
        trigger_class = type(self)
        words = {name: getattr(self, name) for name in self.FIELDS}
        return f"{trigger_class.__module__}.{trigger_class.__qualname__}", words
