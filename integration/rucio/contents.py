"""Create the contents of a new Rucio: its tables, VOs, accounts and RSEs.

The functions run in a process with Rucio's Python environment.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Words = dict[str, Any]

DOMAINS = {
    "lan": {"read": 1, "write": 1, "delete": 1},
    "wan": {
        "read": 1,
        "write": 1,
        "delete": 1,
        "third_party_copy_read": 1,
        "third_party_copy_write": 1,
    },
}


def make_database(vos: Sequence[str] = ()) -> None:
    """Create the tables, the VOs, and the root account of each VO as administrator.

    :param vos: VOs in addition to the base VO, for a Rucio in multi-VO mode.
    """
    from rucio.common.types import InternalAccount
    from rucio.core.account import add_account_attribute
    from rucio.core.vo import add_vo
    from rucio.db.sqla.constants import DatabaseOperationType
    from rucio.db.sqla.session import db_session
    from rucio.db.sqla.util import build_database, create_base_vo, create_root_account

    build_database()
    create_base_vo()
    create_root_account()
    with db_session(DatabaseOperationType.WRITE) as session:
        for vo in vos:
            add_vo(vo, "a VO", "root@example.org", session=session)
        admins = [InternalAccount("root", vo=vo) for vo in vos] or [InternalAccount("root")]
        for admin in admins:
            add_account_attribute(admin, "admin", True, session=session)


def client() -> Any:  # noqa: ANN401 - not installed where types are checked
    """Return a client of Rucio's REST server."""
    from rucio.client import Client

    return Client()


def make_rses(rses: list[Words], distances: list[list[str]] | None = None) -> None:
    """Create RSEs. Set the distance 1 for the pairs ``distances``, by default for all pairs.

    By default, an RSE is a folder. The key ``protocol`` of an RSE overrides fields of its protocol.
    """
    from rucio.common.exception import Duplicate

    rucio = client()
    with contextlib.suppress(Duplicate):
        rucio.add_scope("root", "mock")
    for rse in rses:
        kind = {"rse_type": rse["type"]} if "type" in rse else {}
        kind |= {"staging_area": True} if "staging_area" in rse else {}
        rucio.add_rse(rse["name"], deterministic=True, volatile=False, **kind)
        protocol = {
            "scheme": rse.get("scheme", "file"),
            "hostname": "",
            "port": 0,
            "prefix": rse["prefix"],
            "impl": "rucio.rse.protocols.posix.Default",
            "domains": DOMAINS,
            "extended_attributes": None,
            **rse.get("protocol", {}),
        }
        rucio.add_protocol(rse["name"], protocol)
        for key, value in rse.get("attributes", {}).items():
            rucio.add_rse_attribute(rse["name"], key, value)
        rucio.set_local_account_limit("root", rse["name"], -1)
    names = [rse["name"] for rse in rses]
    pairs = distances or [[one, other] for one in names for other in names if one != other]
    for one, other in pairs:
        rucio.add_distance(one, other, {"distance": 1})
