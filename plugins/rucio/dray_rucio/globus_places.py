"""The place of a Rucio file in a Globus collection. Pure functions.

Rucio's attribute ``globus_endpoint_id`` of an RSE is the UUID of the collection that exports the
files of the RSE. The path in the collection is the path of the PFN. If the collection exports the
files under another path, the attribute ``dray_globus_path`` of the RSE contains this other path,
which then replaces the prefix that the RSE's protocol has in Rucio.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from dray.client import escape
from dray_rucio.places import NoPlaceError, below

__all__ = ["SCHEME", "Collection", "collection", "is_globus", "label_of"]

SCHEME = "globus://"
LABEL_CHARACTERS_MAX = 128
_NOT_IN_LABEL = re.compile(r"[^A-Za-z0-9 _,-]")


@dataclass(frozen=True, slots=True)
class Collection:
    """The collection of an RSE.

    :param rse: name of the RSE, for messages.
    :param id: UUID of the collection.
    :param path: path that replaces the prefix of the RSE's protocols. ``None`` if the collection
        has the same prefix.
    """

    rse: str
    id: str
    path: str | None = None

    @property
    def host(self) -> str:
        """Rucio's external host of a transfer to this collection."""
        return f"{SCHEME}{self.id}"

    def url(self, prefix: str, pfn: str) -> str:
        """Return the URL of a file.

        :raises NoPlaceError: if the PFN is not below the prefix of its protocol.
        """
        # The PFNs of Rucio's protocol for Globus have no scheme.
        name = below(self.rse, prefix, f"{self.host}{pfn}" if pfn.startswith("/") else pfn)
        folder = re.sub("/+", "/", f"/{prefix if self.path is None else self.path}/")
        return f"{self.host}{escape(folder + name)}"


def collection(rse: str, id: str, path: str | None = None) -> Collection:
    """Parse the attributes ``globus_endpoint_id`` and ``dray_globus_path`` of an RSE.

    :raises NoPlaceError: if an attribute is invalid. The message names the RSE and the attribute.
    """
    try:
        parsed = str(uuid.UUID(id))
    except ValueError:
        parsed = ""
    if parsed != id.lower():
        raise NoPlaceError(
            f"RSE {rse}: globus_endpoint_id is {id!r}; write the UUID of a collection"
        )
    if path is not None and not path.startswith("/"):
        raise NoPlaceError(f"RSE {rse}: dray_globus_path is {path!r}; write /FOLDER")
    return Collection(rse, parsed, path)


def is_globus(host: str | None) -> bool:
    """Return true if an external host of Rucio is a collection."""
    return host is not None and host.startswith(SCHEME)


def label_of(did: str, rule_id: str | None) -> str:
    """Return the label of a task, by which a person finds the file and the rule.

    The label is the same in each try, because a repeated submission must be equal. It contains only
    letters, digits and a few other characters, because the service restricts labels.
    """
    text = f"Rucio {did}" if rule_id is None else f"Rucio rule {rule_id} {did}"
    return _NOT_IN_LABEL.sub("_", text)[:LABEL_CHARACTERS_MAX]
