"""Fixtures for tests with a real Rucio and real endpoints."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.endpoints import Endpoint
from integration.endpoint.raw import shipped_program
from integration.harness.scratch import scratch_folder
from integration.rucio.scene import RucioScene
from integration.rucio.server import PYTHON_PATH, Rucio
from integration.rucio.settings import merged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dray.client import Transfer
    from integration.rucio.settings import Settings

SITES = ("a", "b", "c")
READY_SECONDS = 60.0


class Scene(RucioScene):
    """Three endpoints, and a Rucio server with a storage element (RSE) at each."""

    def __init__(
        self,
        folder: Path,
        more: Mapping[str, str] | None = None,
        sections: Settings | None = None,
        vos: Sequence[str] = (),
        database: str | None = None,
        path: Sequence[Path] = (),
    ) -> None:
        """Start the endpoints and Rucio.

        :param more: settings of the plug-in.
        :param sections: further sections of ``rucio.cfg``.
        :param vos: the VOs of a Rucio in multi-VO mode.
        :param database: URL of Rucio's database, by default a new SQLite file.
        :param path: import paths of Rucio's processes, in addition to the usual ones.
        """
        super().__init__(folder)
        #: By site: section `limits` of the endpoint's configuration. A change needs a restart.
        self.limits: dict[str, dict[str, Any]] = {name: {} for name in SITES}
        #: By site: sections `share` of the configuration. A change needs a restart.
        self.shares: dict[str, list[dict[str, Any]]] = {name: [] for name in SITES}
        self._tokens = folder / "tokens"
        self._tokens.mkdir()
        try:
            for name in SITES:
                end = Endpoint(
                    folder / name,
                    name=f"{name}.example",
                    program=shipped_program(),
                    config={"limits": self.limits[name], "share": self.shares[name]},
                )
                self.join(name, end)
            settings = {
                "policy": {"package": "dray_rucio.policy"},
                "conveyor": {"transfertool": "dray", "scheme": "file,dray"},
                "dray": {
                    "token_file": str(self._tokens),
                    "call_seconds": "5",
                    # Call an endpoint again immediately after a failed call: a test restarts a
                    # killed endpoint soon.
                    "away_seconds": "0",
                    "tries": "1",
                    **(more or {}),
                },
            }
            self.rucio = Rucio(
                folder / "rucio",
                merged(settings, sections or {}),
                path=(*PYTHON_PATH, *path),
                vos=vos,
                database=database,
            )
        except BaseException:
            self.close()
            raise

    def join(self, name: str, end: Endpoint) -> None:
        """Start an endpoint as the site ``name``, and give Rucio a token for it."""
        self.ends[name] = end.start()
        (self._tokens / end.address.replace(":", "_")).write_text(end.token())

    @contextlib.contextmanager
    def slow(self, rate: int = 4 << 20) -> Iterator[None]:
        """Limit the rate from site ``a`` to site ``b``, in bytes per second.

        The endpoint at ``b`` is restarted twice.
        """
        end = self.ends["b"]
        end.stop()
        self.shares["b"].append({"peer": self.ends["a"].address, "rate_max": rate})
        end.start()
        try:
            yield
        finally:
            end.stop()
            self.shares["b"].clear()
            end.start()

    def rse(self, site: str, folder: str, **more: str) -> dict[str, Any]:
        """Return the argument of ``make_rses`` for a folder that a site's endpoint exports."""
        end = self.ends[site]
        end.root(folder).mkdir(exist_ok=True)
        name = f"{site}-{folder}".upper()
        attributes = {"dray_url": end.place(folder), "dray_pin": end.key, **more}
        return {"name": name, "prefix": str(end.root(folder)), "attributes": attributes}

    def transfer(self, site: str, request: Mapping[str, Any]) -> Transfer:
        """Return the transfer of a request, as the endpoint that drives it describes it."""
        with self.ends[site].client() as client:
            return client.transfer(request["external_id"])

    def await_ended(self, site: str, *requests: Mapping[str, Any]) -> None:
        """Wait until the transfers of these requests have ended."""
        with self.ends[site].client() as client:
            for request in requests:
                client.wait(request["external_id"], timeout_seconds=READY_SECONDS)

    def await_safe(self, site: str, request: Mapping[str, Any], count: int) -> None:
        """Wait until ``count`` bytes of a request's transfer are durable."""
        until = time.monotonic() + READY_SECONDS
        while self.transfer(site, request).bytes.durable < count:
            assert time.monotonic() < until
            time.sleep(0.05)

    def carry(self, site: str, rule: str, *names: str) -> dict[str, Any]:
        """Run each daemon of Rucio's conveyor once. Return the state of the rule."""
        self.do("submit")
        self.await_ended(
            site, *(each for each in self.requests(*names) if each["state"] == "SUBMITTED")
        )
        self.do("poll")
        self.do("finish")
        found: dict[str, Any] = self.do("rule", id=rule)
        return found

    def close(self) -> None:
        """Stop Rucio and the endpoints."""
        if self.rucio is not None:
            self.rucio.close()
        for end in self.ends.values():
            end.close()


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Yield a scene with the RSEs ``A-DATA``, ``B-DATA`` and ``C-DATA``."""
    with scratch_folder() as folder, contextlib.closing(Scene(folder)) as made:
        made.do("make_rses", rses=[made.rse(site, "data") for site in SITES])
        yield made
