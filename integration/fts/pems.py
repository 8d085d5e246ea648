"""Certificates of the FTS service and of its users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from integration.endpoint.authority import Authority

if TYPE_CHECKING:
    from pathlib import Path

SERVER = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature,keyEncipherment
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1
"""


def make_pems(folder: Path) -> tuple[Authority, dict[str, Path]]:
    """Make an authority, and certificates of the service and of users."""
    authority = Authority(folder)
    pems = {"server": authority.issue("server", extensions=SERVER, is_rsa=True).file()}
    for name in ("alice", "bob", "root", "nobody"):
        pems[name] = authority.issue(name, is_rsa=True).file()
    person = authority.issue("alice2", "/DC=org/DC=dray/CN=alice", is_rsa=True)
    pems["proxy"] = authority.proxy(person, "proxy", is_rsa=True).file()
    # One name, which looks like two.
    pems["tricky"] = authority.issue("tricky", "/DC=org/DC=dray\\/CN=alice", is_rsa=True).file()
    stranger = folder / "stranger"
    stranger.mkdir()
    pems["stranger"] = Authority(stranger).issue("alice", is_rsa=True).file()
    return authority, pems
