"""Watches a destination continuously: a file under a final name must be complete."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


@dataclass(frozen=True)
class Content:
    """The permitted content of a file."""

    size: int
    sha256: bytes


class Watcher(threading.Thread):
    """Checks a tree repeatedly while its context lasts. Then read :attr:`violations`."""

    def __init__(
        self, top: Path, allowed: dict[bytes, set[Content]], *, pause_seconds: float = 0.002
    ) -> None:
        """Watch below ``top``; ``allowed`` holds the permitted contents by relative path.

        :param pause_seconds: minimum pause between two rounds. After a long round, the pause is
            twice as long as the round, so that the watched programs get processor time.
        """
        super().__init__(daemon=True)
        self.pause_seconds = pause_seconds
        self.top = os.fsencode(top)
        self.allowed = allowed
        self.violations: list[str] = []
        self.rounds = 0
        self.seen: set[tuple[bytes, int, int]] = set()
        self.is_over = threading.Event()

    @staticmethod
    def of(described: dict[bytes, tree.Entry], prefix: bytes = b"") -> dict[bytes, set[Content]]:
        """Return the permitted contents of the files of a described tree."""
        return {
            os.path.join(prefix, path) if path else prefix: {Content(entry.size, entry.content)}
            for path, entry in described.items()
            if entry.kind == "file"
        }

    def run(self) -> None:
        """Check all files repeatedly until the context ends, and then once more."""
        while not self.is_over.is_set():
            began = time.monotonic()
            self._check_all()
            time.sleep(max(self.pause_seconds, 2 * (time.monotonic() - began)))
        self._check_all()

    def _check_all(self) -> None:
        self.rounds += 1
        try:
            for path, state in tree.walk(self.top):
                if stat.S_ISREG(state.st_mode):
                    self._check(path, state)
        except OSError as error:
            # A test has made the disk fail, so a folder cannot be read.
            if error.errno != errno.EIO:
                raise

    def _check(self, path: bytes, state: os.stat_result) -> None:
        key = (path, state.st_ino, state.st_mtime_ns)
        if key in self.seen:
            return
        try:
            violation = self._violation(path, state)
        except OSError as error:
            # A test has made the disk fail. The next round checks this file again.
            if error.errno != errno.EIO:
                raise
            return
        if violation:
            self.violations.append(f"{path!r} {violation}")
        self.seen.add(key)

    def _violation(self, path: bytes, state: os.stat_result) -> str:
        """Return what is wrong with a file, or an empty text."""
        allowed = self.allowed.get(path)
        if allowed is None:
            return "was never asked for"
        if state.st_size not in {content.size for content in allowed}:
            return f"stood there with {state.st_size} bytes"
        try:
            found = tree.hash_file(os.path.join(self.top, path))
        except FileNotFoundError:
            return ""
        is_wrong = found not in {content.sha256 for content in allowed}
        return "stood there with wrong content" if is_wrong else ""

    def __enter__(self) -> Watcher:
        """Start watching."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Check once more, and stop watching."""
        self.is_over.set()
        self.join()
