"""A Rucio whose transfertool for FTS calls the FTS service, and endpoints with its RSEs."""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from typing import TYPE_CHECKING, Any

from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.raw import shipped_program
from integration.fts.face import Face
from integration.fts.pems import make_pems
from integration.harness.program import ROOT
from integration.rucio.scene import RucioScene
from integration.rucio.server import Rucio

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dray.client import Transfer
    from integration.fts.broker import Broker

__all__ = ["MIB", "READY_SECONDS", "SITES", "TAPE_ROOTS", "Scene", "adler32"]

MIB = 1 << 20
RATE = "8MiB/s"
READY_SECONDS = 60.0
SITES = ("a", "b", "c")
TAPE_ROOTS = (Root(), Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"}))


class Scene(RucioScene):
    """RSEs with endpoints, one FTS service of dray, and one Rucio.

    :param sites: names of endpoints. The endpoint ``t`` has a tier.
    """

    def __init__(
        self,
        folder: Path,
        sites: Sequence[str],
        broker: Broker | None = None,
        broker_ca: Path | None = None,
    ) -> None:
        """Start everything.

        :param broker: broker to which the service publishes messages.
        :param broker_ca: authority of the broker's certificate, if it is not that of the service.
        """
        super().__init__(folder)
        self.face: Face | None = None
        (folder / "ca").mkdir()
        authority, pems = make_pems(folder / "ca")
        try:
            for site in sites:
                # A copy of a large file takes long enough for a fault.
                end = Endpoint(
                    folder / site,
                    name=f"{site}.example",
                    program=shipped_program(),
                    roots=TAPE_ROOTS if site == "t" else (Root(),),
                    config={"rate": RATE} if site == "b" else None,
                )
                self.ends[site] = end.start()
            more = "".join(
                f'[[prefix]]\nurl = "file://{end.root(root=root.name)}"\nendpoint = "{site}"\n'
                f'path = "/{root.name}"\ntape = {json.dumps(root.name != "data")}\n'
                for site, end in self.ends.items()
                for root in (TAPE_ROOTS if site == "t" else (Root(),))
            )
            if broker is not None:
                more += broker.face_config(broker_ca or authority.file)
            self.face = Face(folder / "face", self.ends, authority.file, pems, more).start()
            settings = {
                "conveyor": {"transfertool": "fts3", "usercert": str(pems["alice"])},
            }
            self.rucio = Rucio(folder / "rucio", settings, path=(ROOT,))
            self.do("make_rses", rses=[self.rse(site, "rse") for site in sites if site != "t"])
        except BaseException:
            self.close()
            raise

    def rse(self, site: str, folder: str, root: str = "data", **more: str) -> dict[str, Any]:
        """Return the description of an RSE, ``A-RSE`` and so on."""
        assert self.face is not None
        path = self.ends[site].root(folder, root=root)
        path.mkdir(exist_ok=True)
        name = f"{site}-{folder}".upper()
        return {"name": name, "prefix": str(path), "attributes": {"fts": self.face.url, **more}}

    def transfer(self, site: str, request: Mapping[str, Any], number: int = 0) -> Transfer | None:
        """Return the transfer of a request, or ``None`` before its submission."""
        id = f"{request['external_id']}.{number}"
        with self.ends[site].client() as client:
            return client.query([id])[id]

    @contextlib.contextmanager
    def held(self, site: str, request: Mapping[str, Any], count: int) -> Iterator[Transfer]:
        """Suspend the source when this many bytes are durable, so that the transfer stays live."""
        found = self.await_durable(site, request, count)
        self.ends["a"].suspend()
        try:
            yield found
        finally:
            self.ends["a"].resume()

    def await_durable(self, site: str, request: Mapping[str, Any], count: int) -> Transfer:
        """Wait until this many bytes of a transfer are durable."""
        until = time.monotonic() + READY_SECONDS
        while (found := self.transfer(site, request)) is None or found.bytes.durable < count:
            assert time.monotonic() < until, found
            time.sleep(0.05)
        return found

    def carry(self, rule: str, *names: str) -> dict[str, Any]:
        """Run the conveyor's daemons once: submit, wait, poll, finish. Return the rule."""
        assert self.face is not None
        self.do("submit", tool="fts3")
        for request in self.requests(*names):
            if request["state"] == "SUBMITTED":
                self.face.wait(request["external_id"])
        self.do("poll", tool="fts3")
        self.do("finish")
        found: dict[str, Any] = self.do("rule", id=rule)
        return found

    def close(self) -> None:
        """End all that was started here."""
        for each in (self.rucio, self.face, *self.ends.values()):
            if each is not None:
                each.close()


def adler32(path: Path) -> str:
    """Return the checksum of a file as Rucio writes it."""
    return f"{zlib.adler32(path.read_bytes()):08x}"
