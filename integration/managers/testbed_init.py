"""Generate the keys, tokens, passwords and configuration files of the test bed in containers.

The service ``init`` of docker/testbed.yaml runs this module once. Each folder of ``FACTS``, and
each folder of ``SITES``, is a volume. A service mounts only the folders that it needs. No image
contains any of the generated values.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.fts.pems import make_pems
from integration.harness.program import ROOT
from integration.managers.sites import FOLDER, POOL, RATE, TICKETS, rse
from integration.rucio import settings
from integration.storage.xrdceph import server_text
from integration.xrootd.files import WRAPPER
from integration.xrootd.servers import PROGRAM, find, usual_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

FACTS = Path(os.environ.get("TESTBED_FACTS", "/facts"))
SITES = Path(os.environ.get("TESTBED_SITES", "/sites"))
#: Home of the user of the services. It is in no volume.
HOME = Path("/home/dray")
PORT, XROOTD_PORT = 4735, 1094
#: Service that counts the bytes of the endpoint ``north``, and the port of its answer.
PROXY_HOST, PROXY_COUNT_PORT = "proxy-north", 4736
#: Name of the service with the XRootD server of the pool.
ARCHIVE_HOST = "xrootd-archive"
ARCHIVE_SERVER = f"root://{ARCHIVE_HOST}:{XROOTD_PORT}"
#: The service ``ceph`` writes the configuration of its clients, because it makes their key.
CEPH_CLIENT = FACTS / "ceph-client" / "client.conf"
CEPH_USER = "dray"
POOL_URL = f"rados://{POOL}//{FOLDER}?conf={CEPH_CLIENT}&user={CEPH_USER}"
LIFETIME = "7d"
SCOPES = "storage.read:/ storage.create:/ storage.modify:/ storage.stage:/"


@dataclass
class Site:
    """A site: its storage, and the configuration and state of its endpoint."""

    name: str
    #: Additional settings of the endpoint, and additional roots.
    settings: str = ""
    roots: str = ""
    #: Fingerprint of the endpoint's key.
    key: str = field(init=False)

    def __post_init__(self) -> None:
        """Create the endpoint, and the folders of the RSEs."""
        self.home = FACTS / self.host
        self.data = SITES / self.name
        for folder in (FOLDER, "calibration"):
            (self.data / folder).mkdir(parents=True, exist_ok=True)
        words = ["--name", self.host, "--listen", f"0.0.0.0:{PORT}"]
        words += ["--state", str(self.home / "state"), "--root", f"data={self.data}"]
        said = _dray("endpoint", "init", str(self.home / "etc"), *words)
        self.key = said.partition("key ")[2].split()[0]
        config = self.home / "etc" / "drayd.toml"
        made = config.read_text(encoding="utf-8")
        text = f'rate = "{RATE}"\n{self.settings}\n{made}\n{self.roots}'
        config.write_text(text, encoding="utf-8")

    @property
    def host(self) -> str:
        """Name of the service of the endpoint."""
        return f"endpoint-{self.name}"

    @property
    def server_host(self) -> str:
        """Name of the service of the XRootD server."""
        return f"xrootd-{self.name}"

    @property
    def server(self) -> str:
        """URL of the XRootD server."""
        return f"root://{self.server_host}:{XROOTD_PORT}"

    def url(self, path: str = "") -> str:
        """Return the URL of a path at the endpoint."""
        return f"dray://{self.host}:{PORT}{path}"

    def token(self, scopes: str = SCOPES) -> str:
        """Return a new token of the endpoint."""
        words = ["--sub", "alice", "--scope", scopes, "--lifetime", LIFETIME]
        return _dray("token", "mint", "--dir", str(self.home / "etc"), *words).strip()


def _dray(*words: str) -> str:
    # Messages of a failure go to the log of the service.
    done = subprocess.run([find("dray"), *words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def write(name: str, text: str) -> Path:
    """Write a file of ``FACTS`` that only the user of the services can read.

    :param name: ``FOLDER/FILE``, with the folder of the services that may read the file.
    """
    path = FACTS / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def write_lines(name: str, *lines: str) -> Path:
    """Write a file of ``FACTS`` from its lines."""
    return write(name, "\n".join([*lines, ""]))


def write_env(folder: str, environment: Mapping[str, str]) -> None:
    """Write the environment variables of the services that mount a folder of ``FACTS``."""
    lines = (f"{name}={shlex.quote(text)}" for name, text in environment.items())
    write_lines(f"{folder}/env", *lines)


def write_postgresql() -> dict[str, str]:
    """Write the passwords of the database server.

    :returns: for each database, the user, password and address of the user who owns this database.
    """
    write("postgresql/password", secrets.token_hex(16))
    addresses, lines = {}, []
    for name in ("airflow", "celery", "rucio"):
        password = secrets.token_hex(16)
        lines.append(f"CREATE ROLE {name} LOGIN PASSWORD '{password}';")
        lines.append(f"CREATE DATABASE {name} OWNER {name};")
        addresses[name] = f"{name}:{password}@postgresql/{name}"
    write_lines("postgresql/databases.sql", *lines)
    return addresses


def write_redis() -> str:
    """Write the configuration of Redis. Return its URL."""
    password = secrets.token_hex(16)
    write("redis/password", password)
    lines = [f"requirepass {password}", 'save ""', "bind 0.0.0.0", "dir /tmp"]
    write_lines("redis/redis.conf", *lines)
    return f"redis://:{password}@redis:6379/0"


def write_xrootd(site: Site, more: tuple[str, ...] = ()) -> None:
    """Write the configuration of a site's XRootD server, with dray's plug-ins."""
    programs = find(PROGRAM).parent
    wrapper = programs / WRAPPER.replace("-5", "")
    write_lines(
        f"{site.server_host}/xrootd.cf",
        *usual_lines(XROOTD_PORT, HOME / "xrootd", site.data),
        "xrootd.chksum max 4 adler32 crc32c",
        f"ofs.osslib ++ {wrapper}",
        f"ofs.tpc ttl 60 120 xfr 4 streams 0,8 echo logok pgm {programs / PROGRAM}",
        *more,
    )


def write_archive() -> None:
    """Write the configuration of the XRootD server of the pool."""
    text = server_text(XROOTD_PORT, HOME / "xrootd", f"{CEPH_USER}@{POOL}")
    write(f"{ARCHIVE_HOST}/xrootd.cf", text)
    write_env(ARCHIVE_HOST, {"CEPH_CONF": str(CEPH_CLIENT)})


def write_tickets(site: Site) -> str:
    """Write the settings of the plug-in for tickets. Return its line for the XRootD server."""
    token = write(f"{site.server_host}/tickets.token", site.token("storage.read:/data"))
    lines = [f"endpoint {site.host}:{PORT}", f"peer_key {site.key}", f"token_file {token}"]
    path = write_lines(f"{site.server_host}/tickets.cf", *lines, f"root data {site.data}")
    return f"ofs.ctllib {find(PROGRAM).parent / TICKETS.replace('-5', '')} {path}"


def write_fts(sites: dict[str, Site]) -> Path:
    """Write the configuration of the FTS service. Return the certificate of Rucio's user."""
    with tempfile.TemporaryDirectory() as folder:
        # The key of the authority is not kept.
        authority, pems = make_pems(Path(folder))
        ca, pem, user = (
            write(name, path.read_text(encoding="utf-8"))
            for name, path in (
                ("fts/ca.pem", authority.file),
                ("fts/server.pem", pems["server"]),
                ("rucio-fts3/alice.pem", pems["alice"]),
            )
        )
    lines = [
        f'listen = "0.0.0.0:8446"\nname = "fts"\nvo = "dteam"\nstate = "{HOME}/fts"',
        f'[tls]\ncertificate = "{pem}"\nkey = "{pem}"\nclient_ca = "{ca}"',
        "[limits]\npoll_seconds = 0.5",
        '[[user]]\nsubject = "/DC=org/DC=dray/CN=alice"\nowner = "alice"',
    ]
    prefixes = {
        "north": (f"{sites['north'].server}//{FOLDER}", f"/data/{FOLDER}"),
        "south": (f"{ARCHIVE_SERVER}//{FOLDER}", "/pool"),
    }
    for name, site in sites.items():
        token = write(f"fts/{name}.token", site.token())
        url, path = prefixes[name]
        lines += [
            f'[[endpoint]]\nname = "{name}"\nurl = "{site.url()}"\npin = "{site.key}"',
            f'token_file = "{token}"',
            f'[[prefix]]\nurl = "{url}"\nendpoint = "{name}"\npath = "{path}"',
        ]
    write_lines("fts/fts.toml", *lines)
    return user


def write_rucio(sites: dict[str, Site], database: str, password: str, pem: Path) -> None:
    """Write the configuration of Rucio's processes, and the RSEs.

    :param password: password of Rucio's client.
    :param pem: certificate of the user of the FTS service.
    """
    tokens = FACTS / "rucio-dray" / "tokens"
    usual = settings.usual(HOME, HOME, "http://rucio:8080", database, password)
    own = {
        "policy": {"package": "dray_rucio.policy"},
        "conveyor": {"scheme": "root", "transfertool": "dray,fts3", "usercert": str(pem)},
        "dray": {"token_file": str(tokens), "call_seconds": "5", "away_seconds": "0"},
        "alembic": {"cfg": str(FACTS / "rucio" / "alembic.ini")},
    }
    whole = settings.merged(usual, own)
    # A client has no access to the database. The server and the daemons are no clients.
    of_client = {name: whole[name] for name in ("common", "client", "policy")}
    settings.write(write("rucio-client/rucio.cfg", ""), of_client)
    whole = {name: words for name, words in whole.items() if name != "client"}
    settings.write(write("rucio/rucio.cfg", ""), whole)
    for tool in ("dray", "fts3"):
        only = {"conveyor": {"transfertool": tool, "filter_transfertool": tool}}
        settings.write(write(f"rucio-{tool}/rucio.cfg", ""), settings.merged(whole, only))
    (package,) = (ROOT / ".tools/rucio").glob("lib/python3*/site-packages/rucio")
    write("rucio/alembic.ini", "")
    settings.write_alembic(FACTS / "rucio", database, package)
    tokens.mkdir(mode=0o700)
    for site in sites.values():
        write(f"rucio-dray/tokens/{site.host}_{PORT}", site.token())
    write("rucio-client/rses.json", json.dumps(rses(sites)))


def rses(sites: dict[str, Site]) -> list[dict[str, Any]]:
    """Return the arguments of ``make_rses``."""
    north, south = sites["north"], sites["south"]
    fts = {"fts": "https://fts:8446"}

    def at(site: Site) -> dict[str, str]:
        return {"dray_url": site.url(f"/data/{FOLDER}"), "dray_pin": site.key}

    return [
        rse("NORTH", north.server, FOLDER, {**at(north), **fts}),
        rse("SOUTH", south.server, FOLDER, at(south)),
        rse("ARCHIVE", ARCHIVE_SERVER, FOLDER, fts),
    ]


def write_airflow(addresses: dict[str, str], redis: str, rucio: str, password: str) -> None:
    """Write the environment of Airflow's components.

    The worker gets no access to the database of Airflow, and cannot sign tokens: it calls the API
    server.

    :param addresses: databases, see :func:`write_postgresql`.
    :param redis: URL of Redis.
    :param rucio: password of Rucio's client.
    :param password: password of Airflow's administrator.
    """
    passwords = write("airflow-api/passwords.json", json.dumps({"admin": password}))
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
    usual = {
        "AIRFLOW_HOME": "/srv/airflow",
        "AIRFLOW__API__BASE_URL": "http://airflow-api:8080",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": "http://airflow-api:8080/execution/",
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
    }
    own = {
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{addresses['airflow']}",
    }
    queue = {
        "AIRFLOW__CELERY__BROKER_URL": redis,
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+postgresql+psycopg2://{addresses['celery']}",
    }
    users = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
    }
    write_env("airflow", {**usual, **own})
    write_env("airflow-api", users)
    write_env("airflow-queue", {**usual, **queue})
    write_env("airflow-rucio", {"AIRFLOW_CONN_RUCIO_DEFAULT": json.dumps(connection)})


def empty(folder: Path) -> None:
    """Delete the contents of a folder. The folder can be a volume, so keep the folder itself."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def main() -> None:
    """Generate everything. Do nothing if an earlier run has done so."""
    if (FACTS / "story/story.json").exists():
        return
    # No service has read the files of a run that did not end: all services wait for its end.
    for folder in FACTS.iterdir():
        empty(folder)
    pool = f'[[root]]\nname = "pool"\nstore = "{POOL_URL}"\n'
    sites = {
        "north": Site("north", settings=f'advertise = "{PROXY_HOST}:{PORT}"'),
        "south": Site("south", roots=pool),
    }
    write_xrootd(sites["north"], (write_tickets(sites["north"]),))
    write_xrootd(sites["south"])
    write_archive()
    addresses, redis = write_postgresql(), write_redis()
    rucio, admin = secrets.token_hex(16), secrets.token_hex(16)
    # Rucio requires version 3 of the driver.
    write_rucio(sites, f"postgresql+psycopg://{addresses['rucio']}", rucio, write_fts(sites))
    write_airflow(addresses, redis, rucio, admin)
    south = sites["south"]
    folders = {name.upper(): site for name, site in sites.items()}
    storage = {name: f"a folder behind {site.server}" for name, site in folders.items()}
    storage["ARCHIVE"] = f"a Ceph pool behind {ARCHIVE_SERVER}"
    story = {
        "password": admin,
        "south": {"url": south.url(), "key": south.key, "token": south.token()},
        "servers": [site.server for site in sites.values()],
        "storage": storage,
        "data": str(sites["north"].data),
    }
    # This file gets its name last. If it exists, all other files are complete.
    write("story/story.new", json.dumps(story)).rename(FACTS / "story/story.json")


if __name__ == "__main__":
    main()
