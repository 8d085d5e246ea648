"""The bed: two sites, the FTS service, Rucio with its daemons, and Airflow.

Invariant: each process that the bed starts carries the mark of the bed in its environment.
:meth:`Bed.close` ends each process with this mark.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.fts.face import Face
from integration.fts.pems import make_pems
from integration.harness.airflow import MARK, Airflow, end_marked
from integration.managers.sites import FOLDER, POOL, Sites, rse
from integration.rucio.server import Rucio
from integration.xrootd.files import make

if TYPE_CHECKING:
    from dray.client import Client
    from dray.testing.endpoints import Endpoint

#: Time between two cycles of Rucio's daemons. Rucio's defaults are up to ten minutes.
CYCLE_SECONDS = "2"
#: Logs of a failed run.
OUT = Path(__file__).parents[1] / "out" / "managers"


class Bed:
    """All managers, with their data in one folder."""

    def __init__(self, folder: Path) -> None:
        """Store the folder. Nothing is started."""
        self.folder = folder
        self.mark = secrets.token_hex(8)
        os.environ[MARK] = self.mark
        self._stack = contextlib.ExitStack()
        self._stack.callback(end_marked, self.mark)

    def start_airflow(self) -> None:
        """Start Airflow. :meth:`await_airflow` waits until it is ready."""
        dags = Path(__file__).parent / "dags"
        self.airflow = Airflow(self.folder / "airflow", [dags], mark=self.mark)
        self._stack.callback(self.airflow.close)
        self.airflow.prepare().start()

    def start_sites(self) -> None:
        """Start endpoints and XRootD servers."""
        self.sites = Sites(self.folder / "sites", self._stack)

    def start_fts(self) -> None:
        """Start the FTS service, which knows the URLs of the RSEs ``NORTH`` and ``ARCHIVE``."""
        folder = self.folder / "ca"
        folder.mkdir()
        authority, self._pems = make_pems(folder)
        sites = self.sites
        prefixes = {
            f"{sites.north_server.url}//{FOLDER}": ("north", f"/data/{FOLDER}"),
            f"{sites.archive_url}//{self._archive_folder}": ("south", f"/{sites.archive_root}"),
        }
        more = "".join(
            f'[[prefix]]\nurl = "{url}"\nendpoint = "{endpoint}"\npath = "{path}"\n'
            for url, (endpoint, path) in prefixes.items()
        )
        ends = {"north": sites.north, "south": sites.south}
        self.fts = Face(self.folder / "fts", ends, authority.file, self._pems, more)
        self._stack.callback(self.fts.close)
        self.fts.start()

    @property
    def _archive_folder(self) -> str:
        return FOLDER if self.sites.pool_server is not None else POOL

    def start_rucio(self) -> None:
        """Start Rucio's server, and create the RSEs."""
        sites = self.sites
        tokens = self.folder / "tokens"
        tokens.mkdir()
        for end in (sites.north, sites.south):
            (tokens / end.address.replace(":", "_")).write_text(end.token(lifetime="12h"))
        settings = {
            "policy": {"package": "dray_rucio.policy"},
            "conveyor": {
                "scheme": "root",
                "transfertool": "dray,fts3",
                "usercert": str(self._pems["alice"]),
            },
            # A killed endpoint is asked again in the next cycle.
            "dray": {"token_file": str(tokens), "call_seconds": "5", "away_seconds": "0"},
        }
        self.rucio = Rucio(self.folder / "rucio", settings)
        self._stack.callback(self.rucio.close)

        def at(end: Endpoint, path: str) -> dict[str, str]:
            return {"dray_url": f"{end.url}/{path}", "dray_pin": end.key}

        fts = {"fts": self.fts.url}
        self.rucio.do(
            "make_rses",
            rses=[
                rse(
                    "NORTH",
                    sites.north_server.url,
                    FOLDER,
                    {**at(sites.north, "data/rucio"), **fts},
                ),
                rse("SOUTH", sites.south_server.url, FOLDER, at(sites.south, "data/rucio")),
                rse("ARCHIVE", sites.archive_url, self._archive_folder, fts),
            ],
        )

    def start_daemons(self) -> None:
        """Start the daemons of Rucio that carry out rules."""
        cycle = ("--sleep-time", CYCLE_SECONDS)
        self.rucio.daemon("submitter", "rucio-conveyor-submitter", "--group-bulk", "100", *cycle)
        # A poller has only one transfertool.
        for tool in ("dray", "fts3"):
            own = {"conveyor": {"transfertool": tool, "filter_transfertool": tool}}
            words = ("python", "-m", "integration.rucio.poll", tool)
            self.rucio.daemon(f"poller-{tool}", *words, more=own)
        self.rucio.daemon("finisher", "rucio-conveyor-finisher", *cycle)
        self.rucio.daemon("repairer", "rucio-judge-repairer", *cycle)

    def await_airflow(self) -> None:
        """Wait until Airflow is ready, and give it the connection of Rucio."""
        self.airflow.await_ready()
        fields = {
            "connection_id": "rucio_default",
            "conn_type": "rucio",
            "host": self.rucio.url,
            "login": "ddmlab",
            "password": "secret",
            "extra": '{"account": "root"}',
        }
        self.airflow.ask("POST", "connections", fields)
        self.airflow.await_dags("replicate")

    # --- what the story needs ---------------------------------------------------------------------

    @property
    def servers(self) -> tuple[str, str]:
        """URLs of the XRootD servers of the sites ``north`` and ``south``."""
        return self.sites.north_server.url, self.sites.south_server.url

    def ask_rucio(self, name: str, /, **words: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a function of :mod:`integration.rucio.inside`."""
        return self.rucio.do(name, **words)

    def make_file(self, path: str, size: int, seed: int) -> None:
        """Write a file of the XRootD server of ``north``."""
        make(self.sites.north_server, path, size, seed)

    def checksum(self, server: str, path: str) -> str:
        """Ask an XRootD server for the adler32 of a file."""
        return self.sites.checksum(server, path)

    def carried(self) -> int:
        """Return how many bytes the endpoint ``north`` has sent on data connections."""
        return self.sites.proxy.counted()[1]

    def client(self) -> Client:
        """Return a client of the endpoint ``south``."""
        return self.sites.south.client()

    def kill_south(self) -> str:
        """Kill the endpoint ``south`` by SIGKILL. Return its process."""
        pid = self.sites.south.pid
        self.sites.south.kill()
        return f"process {pid}"

    def revive_south(self) -> None:
        """Start ``south`` again, and wait until it listens."""
        self.sites.south.start()

    def check(self) -> None:
        """Fail if a process of Rucio has ended by itself."""
        if ended := self.rucio.ended():
            raise RuntimeError(f"Rucio's {ended[0]} ended:\n{self.rucio.said(ended[0])}")

    # --- the end ----------------------------------------------------------------------------------

    def keep_logs(self) -> Path:
        """Copy all logs to the folder :data:`OUT`. Return the folder."""
        shutil.rmtree(OUT, ignore_errors=True)
        for path in self.folder.rglob("*"):
            is_log = path.suffix in (".log", ".out", ".cf", ".toml") or path.parent.name == "log"
            if is_log and path.is_file() and path.stat().st_size:
                at = OUT / path.relative_to(self.folder)
                at.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, at)
        return OUT

    def close(self) -> None:
        """End all processes of the bed."""
        self._stack.close()
