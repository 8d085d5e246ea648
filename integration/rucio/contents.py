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

    The function keeps everything that an earlier call created, even if that call was interrupted.

    :param vos: VOs in addition to the base VO, for a Rucio in multi-VO mode.
    """
    from rucio.common.config import config_get_bool
    from rucio.common.constants import DEFAULT_VO
    from rucio.common.types import InternalAccount
    from rucio.core import account as accounts
    from rucio.core.vo import add_vo
    from rucio.db.sqla import models, util
    from rucio.db.sqla.constants import DatabaseOperationType
    from rucio.db.sqla.session import db_session
    from sqlalchemy import select

    is_multi = config_get_bool("common", "multi_vo", raise_exception=False, default=False)
    root = InternalAccount("super_root" if is_multi else "root", vo=DEFAULT_VO)
    util.build_database()
    with db_session(DatabaseOperationType.READ) as session:
        found = set(session.scalars(select(models.VO.vo)))
        has_root = accounts.account_exists(root, session=session)
    if DEFAULT_VO not in found:
        util.create_base_vo()
    if not has_root:
        util.create_root_account()
    with db_session(DatabaseOperationType.WRITE) as session:
        for vo in sorted(set(vos) - found):
            add_vo(vo, "a VO", "root@example.org", session=session)
        admins = [InternalAccount("root", vo=vo) for vo in vos] or [root]
        for admin in admins:
            if not accounts.has_account_attribute(admin, "admin", session=session):
                accounts.add_account_attribute(admin, "admin", True, session=session)


def client() -> Any:  # noqa: ANN401 - not installed where types are checked
    """Return a client of Rucio's REST server."""
    from rucio.client import Client

    return Client()


def make_rses(rses: list[Words], distances: list[list[str]] | None = None) -> None:
    """Create RSEs. Set the distance 1 for the pairs ``distances``, by default for all pairs.

    By default, an RSE is a folder. The key ``protocol`` of an RSE overrides fields of its protocol.
    The function keeps everything that an earlier call created, even if that call was interrupted.
    """
    from rucio.common.exception import Duplicate

    rucio = client()
    with contextlib.suppress(Duplicate):
        rucio.add_scope("root", "mock")
    for rse in rses:
        _make_rse(rucio, rse)
    names = [rse["name"] for rse in rses]
    pairs = distances or [[one, other] for one in names for other in names if one != other]
    for one, other in pairs:
        with contextlib.suppress(Duplicate):
            rucio.add_distance(one, other, {"distance": 1})


def _make_rse(rucio: Any, rse: Words) -> None:  # noqa: ANN401 - a client, see above
    """Create the missing parts of an RSE."""
    from rucio.common.exception import Duplicate

    name = rse["name"]
    kind = {"rse_type": rse["type"]} if "type" in rse else {}
    kind |= {"staging_area": True} if "staging_area" in rse else {}
    with contextlib.suppress(Duplicate):
        rucio.add_rse(name, deterministic=True, volatile=False, **kind)
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
    try:
        rucio.add_protocol(name, protocol)
    except Duplicate:
        prefixes = [each["prefix"] for each in rucio.get_protocols(name)]
        if protocol["prefix"] not in prefixes:
            raise ValueError(
                f"cannot create the RSE {name} with the prefix {protocol['prefix']}: "
                f"it exists with the prefix {', '.join(prefixes)}. Use another name."
            ) from None
    known = rucio.list_rse_attributes(name)
    for key, value in rse.get("attributes", {}).items():
        if key not in known:
            rucio.add_rse_attribute(name, key, value)
        # Rucio returns some texts as numbers or truth values.
        elif str(known[key]).lower() != str(value).lower():
            raise ValueError(
                f"cannot create the RSE {name} with {key}={value}: it exists with "
                f"{key}={known[key]}. Use another name."
            )
    rucio.set_local_account_limit("root", name, -1)
