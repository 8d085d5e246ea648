"""How a trigger travels: by its class and what it was made with."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["OfFields"]


class OfFields:
    """Makes another one like it, in any triggerer; stands before ``BaseTrigger`` among the bases.

    Invariant: ``FIELDS`` are the parameters of the class, each kept under its own name.
    """

    FIELDS: ClassVar[tuple[str, ...]]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Give what makes another one like it."""
        of = type(self)
        words = {name: getattr(self, name) for name in self.FIELDS}
        return f"{of.__module__}.{of.__qualname__}", words
