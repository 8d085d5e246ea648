"""A network namespace with one link to this host. A test can cut and restore the link.

A cut link drops packets: no connection is closed, and no error comes back. Only root can make a
namespace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from integration.storage.gluster import run

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Network", "find_missing", "network"]

#: IP addresses of this host and of the namespace. ``HARDWARE`` is the MAC address of the namespace.
HERE, THERE = "10.77.6.1", "10.77.6.2"
HARDWARE = "02:00:0a:4d:06:02"


def find_missing() -> str:
    """Return why this host cannot make a namespace. An empty text: it can."""
    if os.geteuid() != 0:
        return "only root can make a network namespace"
    missing = [program for program in ("ip", "nsenter") if not shutil.which(program)]
    return f"{', '.join(missing)} missing" if missing else ""


class Network:
    """A network namespace, and its link to this host."""

    def __init__(self) -> None:
        """Create the namespace and the link."""
        _remove_leftovers()
        self.space = f"dray-net-{os.getpid()}"
        self._link = f"dray{os.getpid() % 10**6}"
        run("ip", "netns", "add", self.space)
        run("ip", "link", "add", self._link, "type", "veth", "peer", "far", "netns", self.space)
        self._there("link", "set", "far", "address", HARDWARE)
        run("ip", "address", "add", f"{HERE}/30", "dev", self._link)
        self._there("address", "add", f"{THERE}/30", "dev", "far")
        for name in ("lo", "far"):
            self._there("link", "set", name, "up")
        run("ip", "link", "set", self._link, "up")
        # Without a permanent entry, the kernel reports an unreachable host soon after a cut.
        words = ["lladdr", HARDWARE, "dev", self._link, "nud", "permanent"]
        run("ip", "neighbour", "replace", THERE, *words)

    @property
    def wrap(self) -> list[str]:
        """Return the words before a command, with which it runs in the namespace."""
        return ["nsenter", f"--net=/run/netns/{self.space}", "--"]

    def _there(self, *words: str) -> None:
        run("ip", "-n", self.space, *words)

    def cut(self) -> None:
        """Cut the link."""
        self._there("link", "set", "far", "down")

    def restore(self) -> None:
        """Restore the link."""
        self._there("link", "set", "far", "up")

    def close(self) -> None:
        """Remove the link and the namespace."""
        for words in (["link", "del", self._link], ["netns", "del", self.space]):
            with contextlib.suppress(OSError):
                run("ip", *words)


def _remove_leftovers() -> None:
    """Remove the namespaces of killed test processes.

    All links have the same addresses, so a leftover link would take the packets of a new link.
    """
    for path in Path("/run/netns").glob("dray-net-*"):
        pid = path.name.rpartition("-")[2]
        if not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                # The link has one end in the namespace, so both disappear.
                run("ip", "netns", "del", path.name)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Yield a namespace with its link."""
    made = Network()
    try:
        yield made
    finally:
        made.close()
