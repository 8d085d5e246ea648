"""Serialisation of an Airflow trigger as the name and the arguments of the trigger's class."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["OfFields"]


class OfFields:
    """Serialises a trigger by its arguments. A trigger names this class before ``BaseTrigger``.

    Invariant: ``FIELDS`` are the parameters of the class, and each is stored in an attribute of the
    same name.
    """

    FIELDS: ClassVar[tuple[str, ...]]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments that create an equal trigger."""
        trigger_class = type(self)
        words = {name: getattr(self, name) for name in self.FIELDS}
        return f"{trigger_class.__module__}.{trigger_class.__qualname__}", words
