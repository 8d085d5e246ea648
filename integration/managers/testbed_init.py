"""Generate the keys, tokens, passwords and configuration files of the test bed in containers.

The service ``init`` of docker/testbed.yaml runs this module once. ``FACTS`` and ``SITES`` are
volumes. No image contains any of the generated values.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from integration.fts.pems import make_pems
from integration.harness.program import ROOT
from integration.managers.sites import FOLDER, POOL, RATE, TICKETS, rse
from integration.rucio import settings
from integration.xrootd.files import WRAPPER
from integration.xrootd.servers import PROGRAM, find, usual_lines

FACTS = Path(os.environ.get("TESTBED_FACTS", "/facts"))
SITES = Path(os.environ.get("TESTBED_SITES", "/sites"))
PORT, XROOTD_PORT = 4735, 1094
LIFETIME = "7d"
SCOPES = "storage.read:/ storage.create:/ storage.modify:/ storage.stage:/"


@dataclass
class Site:
    """A site: the volume with the configuration, state and data of its endpoint."""

    name: str
    #: Fingerprint of the endpoint's key.
    key: str = field(init=False)

    def __post_init__(self) -> None:
        """Create the endpoint, and the folders of the RSEs."""
        self.home = SITES / self.name
        self.data = self.home / "data"
        for folder in (FOLDER, POOL, "calibration"):
            (self.data / folder).mkdir(parents=True)
        (self.home / "xrootd").mkdir()
        words = ["--name", self.host, "--listen", f"0.0.0.0:{PORT}"]
        words += ["--state", str(self.home / "state"), "--root", f"data={self.data}"]
        said = _dray("endpoint", "init", str(self.home / "etc"), *words)
        self.key = said.partition("key ")[2].split()[0]
        config = self.home / "etc" / "drayd.toml"
        made = config.read_text(encoding="utf-8")
        config.write_text(f'rate = "{RATE}"\n{made}\n[metrics]\nopen = true\n', encoding="utf-8")

    @property
    def host(self) -> str:
        """Name of the container of the endpoint."""
        return f"endpoint-{self.name}"

    @property
    def server(self) -> str:
        """URL of the XRootD server."""
        return f"root://xrootd-{self.name}:{XROOTD_PORT}"

    def url(self, path: str = "") -> str:
        """Return the URL of a path at the endpoint."""
        return f"dray://{self.host}:{PORT}{path}"

    def token(self, scopes: str = SCOPES) -> str:
        """Return a new token of the endpoint."""
        words = ["--sub", "alice", "--scope", scopes, "--lifetime", LIFETIME]
        return _dray("token", "mint", "--dir", str(self.home / "etc"), *words).strip()


def _dray(*words: str) -> str:
    done = subprocess.run([find("dray"), *words], check=True, capture_output=True, text=True)
    return done.stdout


def write(name: str, text: str) -> Path:
    """Write a file of ``FACTS`` that only the user of the services can read."""
    path = FACTS / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def write_lines(name: str, *lines: str) -> Path:
    """Write a file of ``FACTS`` from its lines."""
    return write(name, "\n".join([*lines, ""]))


def write_xrootd(site: Site, more: tuple[str, ...] = ()) -> None:
    """Write the configuration of a site's XRootD server, with dray's plug-ins."""
    programs = find(PROGRAM).parent
    wrapper = programs / WRAPPER.replace("-5", "")
    write_lines(
        f"xrootd-{site.name}.cf",
        *usual_lines(XROOTD_PORT, site.home / "xrootd", site.data),
        "xrootd.chksum max 4 adler32 crc32c",
        f"ofs.osslib ++ {wrapper}",
        f"ofs.tpc ttl 60 120 xfr 4 streams 0,8 echo logok pgm {programs / PROGRAM}",
        *more,
    )


def write_tickets(site: Site) -> str:
    """Write the settings of the plug-in for tickets. Return its line for the XRootD server."""
    token = write("tickets.token", site.token("storage.read:/data"))
    lines = [f"endpoint {site.host}:{PORT}", f"peer_key {site.key}", f"token_file {token}"]
    path = write_lines("tickets.cf", *lines, f"root data {site.data}")
    return f"ofs.ctllib {find(PROGRAM).parent / TICKETS.replace('-5', '')} {path}"


def write_fts(sites: dict[str, Site], ca: Path, pem: Path) -> None:
    """Write the configuration of the FTS service."""
    lines = [
        'listen = "0.0.0.0:8446"\nname = "fts"\nvo = "dteam"\nstate = "/home/dray/fts"',
        f'[tls]\ncertificate = "{pem}"\nkey = "{pem}"\nclient_ca = "{ca}"',
        "[limits]\npoll_seconds = 0.5",
        '[[user]]\nsubject = "/DC=org/DC=dray/CN=alice"\nowner = "alice"',
    ]
    prefixes = {"north": FOLDER, "south": POOL}
    for name, site in sites.items():
        token = write(f"fts-{name}.token", site.token())
        lines += [
            f'[[endpoint]]\nname = "{name}"\nurl = "{site.url()}"\npin = "{site.key}"',
            f'token_file = "{token}"',
            f'[[prefix]]\nurl = "{site.server}//{prefixes[name]}"\nendpoint = "{name}"',
            f'path = "/data/{prefixes[name]}"',
        ]
    write_lines("fts.toml", *lines)


def write_rucio(sites: dict[str, Site], database: str, password: str, pem: Path) -> None:
    """Write the configuration of Rucio's processes, and the RSEs."""
    folder = Path("/home/dray")
    usual = settings.usual(folder, folder, "http://rucio:8080", database, password)
    own = {
        "policy": {"package": "dray_rucio.policy"},
        "conveyor": {"scheme": "root", "transfertool": "dray,fts3", "usercert": str(pem)},
        "dray": {"token_file": str(FACTS / "tokens"), "call_seconds": "5", "away_seconds": "0"},
        "alembic": {"cfg": str(FACTS / "alembic.ini")},
    }
    whole = settings.merged(usual, own)
    settings.write(write("rucio.cfg", ""), whole)
    for tool in ("dray", "fts3"):
        only = {"conveyor": {"transfertool": tool, "filter_transfertool": tool}}
        settings.write(write(f"rucio-{tool}.cfg", ""), settings.merged(whole, only))
    (package,) = (ROOT / ".tools/rucio").glob("lib/python3*/site-packages/rucio")
    write("alembic.ini", "")
    settings.write_alembic(FACTS, database, package)
    for site in sites.values():
        write(f"tokens/{site.host}_{PORT}", site.token())
    north, south = sites["north"], sites["south"]
    fts = {"fts": "https://fts:8446"}

    def at(site: Site) -> dict[str, str]:
        return {"dray_url": site.url(f"/data/{FOLDER}"), "dray_pin": site.key}

    rses = [
        rse("NORTH", north.server, FOLDER, {**at(north), **fts}),
        rse("SOUTH", south.server, FOLDER, at(south)),
        rse("ARCHIVE", south.server, POOL, fts),
    ]
    write("rses.json", json.dumps(rses))


def airflow_environment(database: str, redis: str, rucio: str, password: str) -> dict[str, str]:
    """Return the environment of Airflow's components.

    :param rucio: password of Rucio's client.
    :param password: password of Airflow's administrator.
    """
    passwords = write("airflow-passwords.json", json.dumps({"admin": password}))
    bundle = {
        "name": "managers",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(Path(__file__).parent / "dags")},
    }
    connection = {
        "conn_type": "rucio",
        "host": "http://rucio:8080",
        "login": settings.USER,
        "password": rucio,
        "extra": {"account": "root"},
    }
    return {
        "AIRFLOW_HOME": "/srv/airflow",
        "AIRFLOW_CONN_RUCIO_DEFAULT": json.dumps(connection),
        "AIRFLOW__API__BASE_URL": "http://airflow-api:8080",
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CELERY__BROKER_URL": f"redis://:{redis}@redis:6379/0",
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{database}",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": "http://airflow-api:8080/execution/",
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
    }


def main() -> None:
    """Generate everything. Do nothing if an earlier run has done so."""
    if (FACTS / "env").exists():
        return
    sites = {name: Site(name) for name in ("north", "south")}
    (FACTS / "ca").mkdir(mode=0o700)
    authority, pems = make_pems(FACTS / "ca")
    write_xrootd(sites["north"], (write_tickets(sites["north"]),))
    write_xrootd(sites["south"])
    write_fts(sites, authority.file, pems["server"])
    sql, redis, rucio, admin = (secrets.token_hex(16) for _ in range(4))
    write("postgresql", sql)
    write("redis", redis)
    write_lines("redis.conf", f"requirepass {redis}", 'save ""', "bind 0.0.0.0", "dir /tmp")
    server = f"postgres:{sql}@postgresql"
    # Rucio requires version 3 of the driver.
    write_rucio(sites, f"postgresql+psycopg://{server}/rucio", rucio, pems["alice"])
    south = sites["south"]
    story = {
        "password": admin,
        "south": {"url": south.url(), "key": south.key, "token": south.token()},
        "servers": [site.server for site in sites.values()],
        "data": str(sites["north"].data),
    }
    write("story.json", json.dumps(story))
    environment = airflow_environment(
        f"postgresql+psycopg2://{server}/airflow", redis, rucio, admin
    )
    # This file is written last. If it exists, all other files exist too.
    write_lines("env", *(f"{name}={shlex.quote(text)}" for name, text in environment.items()))


if __name__ == "__main__":
    main()
