"""Fixtures for tests with a real Rucio and real endpoints."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.endpoints import Endpoint
from integration.endpoint.raw import shipped_program
from integration.rucio.server import Rucio

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dray.client import Transfer

SITES = ("a", "b", "c")
READY_SECONDS = 60.0


class Scene:
    """Three endpoints, and a Rucio server with a storage element (RSE) at each."""

    def __init__(self, folder: Path) -> None:
        """Start the endpoints and Rucio."""
        self._folder = folder
        self._numbers = itertools.count(1)
        self.ends: dict[str, Endpoint] = {}
        #: By site: section `limits` of the endpoint's configuration. A change needs a restart.
        self.limits: dict[str, dict[str, Any]] = {name: {} for name in SITES}
        self.rucio: Rucio | None = None
        self._tokens = folder / "tokens"
        self._tokens.mkdir()
        try:
            for name in SITES:
                end = Endpoint(
                    folder / name,
                    name=f"{name}.example",
                    program=shipped_program(),
                    config={"limits": self.limits[name]},
                )
                self.join(name, end)
            settings = {
                "policy": {"package": "dray_rucio.policy"},
                "conveyor": {"transfertool": "dray"},
                "dray": {
                    "token_file": str(self._tokens),
                    "call_seconds": "5",
                    # Call an endpoint again immediately after a failed call: a test restarts a
                    # killed endpoint soon.
                    "away_seconds": "0",
                    "tries": "1",
                },
            }
            self.rucio = Rucio(folder / "rucio", settings)
        except BaseException:
            self.close()
            raise

    def join(self, name: str, end: Endpoint) -> None:
        """Start an endpoint as the site ``name``, and give Rucio a token for it."""
        self.ends[name] = end.start()
        (self._tokens / end.address.replace(":", "_")).write_text(end.token())

    def do(self, name: str, /, **words: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a function in Rucio's environment."""
        assert self.rucio is not None
        return self.rucio.do(name, **words)

    def rse(self, site: str, folder: str, **more: str) -> dict[str, Any]:
        """Return the argument of ``make_rses`` for a folder that a site's endpoint exports."""
        end = self.ends[site]
        end.root(folder).mkdir(exist_ok=True)
        name = f"{site}-{folder}".upper()
        attributes = {"dray_url": end.place(folder), "dray_pin": end.key, **more}
        return {"name": name, "prefix": str(end.root(folder)), "attributes": attributes}

    def dataset(self, rse: str, sizes: Mapping[str, int]) -> tuple[str, dict[str, str]]:
        """Upload a new dataset. Return the name of the dataset and the checksums of its files."""
        number = next(self._numbers)
        folder = self._folder / f"upload-{number}"
        folder.mkdir()
        named = {f"{number}.{name}": size for name, size in sizes.items()}
        sums = self.do("upload", rse=rse, dataset=f"ds{number}", folder=str(folder), sizes=named)
        shutil.rmtree(folder)
        return f"ds{number}", sums

    def file(self, site: str, folder: str, name: str) -> Path:
        """Return the path of a file in an RSE, or a path that does not exist."""
        found = list(self.ends[site].root(folder).glob(f"mock/*/*/{name}"))
        return found[0] if found else self.ends[site].root(f"{folder}/not-there/{name}")

    def requests(self, *names: str) -> list[dict[str, Any]]:
        """Return Rucio's requests for these files, oldest first."""
        return [each for each in self.do("requests") if each["name"] in names]

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
    folder = Path(tempfile.mkdtemp(prefix="dray-test-", dir=os.environ.get("DRAY_TEST_DIR")))
    made = Scene(folder)
    try:
        made.do("make_rses", rses=[made.rse(site, "data") for site in SITES])
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
