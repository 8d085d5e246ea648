"""The description of a fault, and the forms of the object log with which it is tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.fault_matrix.scene import Scene

USUAL = "universal:ranges"
MECHANISMS = ("universal", "transaction", "file")
METHODS = ("ranges", "char", "bit8")
#: Every mechanism with three methods: dray's own, the longest and the shortest of the paper.
FORMS = tuple(f"{mechanism}:{method}" for mechanism in MECHANISMS for method in METHODS)
#: The same, also with asynchronous logging.
ALL_FORMS = tuple(f"{form}{option}" for form in FORMS for option in ("", ":async"))


def _nothing(_: Scene) -> None:
    pass


def _no_reason() -> str | None:
    return None


@dataclass(frozen=True)
class Fault:
    """A fault, and how the scene is made for it."""

    name: str
    group: str
    #: Text for the page: the fault, and how it is made.
    text: str
    #: Function that makes the fault occur, and afterwards starts again what it has ended.
    strike: Callable[[Scene], None]
    #: Function that is called before the processes of the scene start.
    prepare: Callable[[Scene], None] = _nothing
    #: Function that is called when half of the data before the moment is durable.
    halfway: Callable[[Scene], None] | None = None
    forms: tuple[str, ...] = (USUAL,)
    #: Function that returns why this host cannot make the fault, or None if it can.
    reason_to_skip: Callable[[], str | None] = _no_reason
