"""Repeats calls that failed because an endpoint was unreachable."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from dray import DrayError
from dray_rucio.hosts import LATER_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Again"]

SECONDS_MAX = 3600.0
"""Seconds after which a call is no longer repeated.

By then the endpoint has usually ended the transfer, because its `bound_seconds` have passed.
"""
CALLS_MAX = 10_000
FIRST_PAUSE = 2.0
LONGEST_PAUSE = 60.0
_LOG = logging.getLogger(__name__)


class Again:
    """Repeats calls in its own thread, which ends when all calls are done.

    The calls are not stored on disk. If the process ends, pending calls are lost.
    """

    def __init__(self, first_pause: float = FIRST_PAUSE) -> None:
        """Create an empty list. The thread starts with the first call."""
        self._first_pause = first_pause
        self._calls: dict[str, tuple[float, Callable[[], object]]] = {}
        self._lock = threading.Lock()
        self._is_running = False

    def add(self, name: str, call: Callable[[], object]) -> None:
        """Repeat ``call`` until it succeeds, fails for good, or :data:`SECONDS_MAX` have passed.

        :param name: name of the call. A pending call with the same name is replaced.
        """
        with self._lock:
            if name not in self._calls and len(self._calls) >= CALLS_MAX:
                _LOG.warning(
                    "dray: %s: not repeated, because %d other calls already wait to be repeated",
                    name,
                    CALLS_MAX,
                )
                return
            self._calls[name] = (time.monotonic() + SECONDS_MAX, call)
            if self._is_running:
                return
            self._is_running = True
        threading.Thread(target=self._run, name="dray-again", daemon=True).start()

    def _run(self) -> None:
        pause = self._first_pause
        while True:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            with self._lock:
                calls = list(self._calls.items())
            for name, (until, call) in calls:
                if self._is_over(name, until, call):
                    pause = self._first_pause
                    with self._lock:
                        # If another call with this name was added since, that call stays.
                        if self._calls.get(name) == (until, call):
                            del self._calls[name]
            with self._lock:
                if not self._calls:
                    self._is_running = False
                    return

    def _is_over(self, name: str, until: float, call: Callable[[], object]) -> bool:
        try:
            call()
        except DrayError as error:
            if error.kind in LATER_KINDS and time.monotonic() < until:
                return False
            _LOG.warning("dray: %s: failed, and is not repeated: %s", name, error)
        except Exception:
            _LOG.exception("dray: %s: failed, and is not repeated", name)
        else:
            _LOG.info("dray: %s: done", name)
        return True
