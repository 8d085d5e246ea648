"""Split the time of a daemon's pass between Rucio, its database, the plug-in and the endpoints.

A part is counted without the parts that it calls. All functions run in the process that runs
Rucio's code (:mod:`integration.rucio.inside`).
"""

from __future__ import annotations

import functools
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Split"]

METHODS = ("submission_builder_for_path", "group_into_submit_jobs", "submit", "bulk_query")
REPORTS = ("initialize", "get_monitor_msg_fields")


class Split:
    """Counts seconds and SQL statements by part: ``rucio``, ``plug-in`` and ``endpoint``.

    The name of a part's time in the database ends with ``sql``.
    """

    def __init__(self) -> None:
        """Wrap the functions in which parts begin. They stay wrapped until the process ends."""
        self._threads = threading.local()
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}
        self._statements: dict[str, int] = {}
        self._wrap_plug_in()
        self._wrap_database()

    def of(self, call: Callable[[], object]) -> dict[str, Any]:
        """Call a function. Return the seconds of each part, and the numbers of statements."""
        self._seconds, self._statements = {}, {}
        start = time.monotonic()
        with self._part("rucio"):
            call()
        seconds = time.monotonic() - start
        # The daemons work in threads of their own, and the calling thread waits for these.
        named = {key: value for key, value in self._seconds.items() if key != "rucio"}
        named["rucio"] = seconds - sum(named.values())
        return {"seconds": named, "statements": self._statements}

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        stack = self._threads.__dict__.setdefault("stack", [])
        now = time.monotonic()
        if stack:
            self._add(stack[-1][0], now - stack[-1][1])
        stack.append([name, now])
        try:
            yield
        finally:
            now = time.monotonic()
            _, since = stack.pop()
            self._add(name, now - since)
            if stack:
                stack[-1][1] = now

    def _add(self, name: str, seconds: float) -> None:
        with self._lock:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def _current(self) -> str:
        stack = self._threads.__dict__.setdefault("stack", [])
        return str(stack[-1][0]) if stack else "rucio"

    def _wrapped(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*words: Any, **named: Any) -> Any:  # noqa: ANN401
            with self._part(part):
                return call(*words, **named)

        return timed

    def _wrap_plug_in(self) -> None:
        from dray.client import Client
        from dray_rucio.report import DrayReport
        from dray_rucio.routing import RoutingTransfertool

        for name in METHODS:
            method = getattr(RoutingTransfertool, name)
            timed = self._wrapped("plug-in", getattr(method, "__func__", method))
            is_bound = hasattr(method, "__self__")
            setattr(RoutingTransfertool, name, classmethod(timed) if is_bound else timed)
        for name in REPORTS:
            setattr(DrayReport, name, self._wrapped("plug-in", getattr(DrayReport, name)))
        # Each call of the API ends here.
        for name in ("_run", "_iterate"):
            setattr(Client, name, self._wrapped("endpoint", getattr(Client, name)))

    def _wrap_database(self) -> None:
        from sqlalchemy.engine.default import DefaultDialect

        for name in ("do_execute", "do_executemany", "do_commit"):
            setattr(DefaultDialect, name, self._of_database(getattr(DefaultDialect, name)))

    def _of_database(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*words: Any, **named: Any) -> Any:  # noqa: ANN401
            part = self._current().removesuffix(" sql")
            with self._lock:
                self._statements[part] = self._statements.get(part, 0) + 1
            with self._part(f"{part} sql"):
                return call(*words, **named)

        return timed
