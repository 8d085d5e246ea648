"""Compares copies into and out of a Ceph cluster with Ceph's own benchmark and other copiers.

``python -m integration.bench.ceph`` prints the tables of docs/explanation/measured-ceph.md. The
program starts a cluster of one monitor, one manager and three OSDs on this host. The OSDs keep
their data on disk (bluestore). Copiers that are not installed are left out.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench import machine
from integration.bench.begin import catch_signals
from integration.bench.beside import (
    MIB,
    TMPFS,
    Results,
    Way,
    command_of,
    find_engine,
    options,
    run_all,
    show,
    table,
)
from integration.harness.airflow import free_port
from integration.harness.loop import disk, limits_reason
from integration.harness.program import Process
from integration.storage import xrdceph
from integration.storage.ceph import Cluster, find_missing
from integration.xrootd.servers import PATIENCE, compile_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from integration.harness.program import Word
    from integration.storage.xrdceph import XrdCeph

OBJECT = 4 * MIB
#: Number of concurrent requests of ``rados bench``. dray makes as many: it has four readers or
#: writers for each of the three OSDs.
DEPTH = 12
POOL = "bench"
BASE = "rados bench"
#: A program that copies a file by librados alone, and the ways to run it. ``rados bench`` writes
#: zeros from one buffer. These ways show the cost of bytes other than zeros, and of reading the
#: file.
LIBRADOS = Path(__file__).with_name("rados_copy.c")
BY_LIBRADOS = {"memory": "librados, {depth} objects in memory", "file": "librados, file"}
KEY, SECRET = "bench-access", "bench-secret-0123456789"
#: Seconds to wait after objects were removed.
SETTLE_SECONDS = 2.0
#: Bytes of an OSD's device in addition to the bytes of the OSD, for the file system.
DEVICE_EXTRA_BYTES = 1 << 30
#: Bytes of memory that are touched before a run, for programs and their buffers.
BESIDE_BYTES = 1 << 30


class Gateway:
    """An S3 server of the Ceph cluster (radosgw)."""

    def __init__(self, cluster: Cluster) -> None:
        """Start the gateway, and wait until it listens."""
        self.cluster, self.port = cluster, free_port()
        name = "client.rgw"
        # The gateway logs in as this user, so the cluster must use keys.
        keyring = cluster.make_user(name, "mon allow rwx", "osd allow rwx")
        common: list[Word] = ["-c", cluster.configuration, "-n", name, "--keyring", keyring]
        folder = cluster.folder / "rgw"
        folder.mkdir()
        user = ["user", "create", "--uid=bench", "--display-name=bench"]
        keys = [f"--access-key={KEY}", f"--secret-key={SECRET}"]
        Process(["radosgw-admin", *common, *user, *keys], folder, "admin").wait().expect(0)
        frontend = f"beast endpoint=127.0.0.1:{self.port}"
        words: list[Word] = ["radosgw", *common, "-f", "--rgw-frontends", frontend]
        words += ["--rgw-data", folder, "--log-file", folder / "rgw.log"]
        wrap = ["setpriv", "--pdeathsig", "KILL", "--"]
        self.process = Process(words, folder, "rgw", wrap=wrap)
        self.configuration = folder / "s3cfg"
        self.configuration.write_text(
            f"[default]\naccess_key = {KEY}\nsecret_key = {SECRET}\nuse_https = False\n"
            f"host_base = 127.0.0.1:{self.port}\nhost_bucket = 127.0.0.1:{self.port}\n",
            encoding="utf-8",
        )
        #: Environment of ``rclone``, with the settings of its remote ``gw``.
        self.env = {
            "RCLONE_CONFIG_GW_TYPE": "s3",
            "RCLONE_CONFIG_GW_PROVIDER": "Ceph",
            "RCLONE_CONFIG_GW_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "RCLONE_CONFIG_GW_ACCESS_KEY_ID": KEY,
            "RCLONE_CONFIG_GW_SECRET_ACCESS_KEY": SECRET,
            "RCLONE_CONFIG": str(folder / "rclone.conf"),
            "AWS_CA_BUNDLE": "",
        }
        until = time.monotonic() + 60
        while not machine.listens(self.port):
            if not self.process.is_running() or time.monotonic() > until:
                log = self.process.log_path.read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"radosgw does not listen: {log[-2000:]}")
            time.sleep(0.1)
        self._s3("mb", "s3://bench")

    def _s3(self, *words: Word) -> None:
        whole: list[Word] = ["s3cmd", "-c", self.configuration, *words]
        Process(whole, self.cluster.folder / "rgw", "s3").wait().expect(0)

    def close(self) -> None:
        """Kill the gateway."""
        self.process.send(signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def cluster(
    folder: Path | None, *, has_keys: bool = False, osd_bytes: int = 12 << 30, limit: int = 0
) -> Iterator[Cluster]:
    """Start a Ceph cluster in a new folder, and make its pool ``POOL``.

    :param limit: the highest rate of each OSD's device, for reads and for writes, in bytes per
        second. The devices are then loop devices. 0: no limit.
    """
    top = Path(tempfile.mkdtemp(prefix="dray-bench-", dir=folder))
    # Servers that run as other users read the cluster's configuration in this folder.
    top.chmod(0o755)
    auth = "cephx" if has_keys else "none"
    made = Cluster(top, store="bluestore", auth=auth, osd_bytes=osd_bytes)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, top, ignore_errors=True)
        disks = [
            stack.enter_context(disk(top / f"osd.{number}", osd_bytes + DEVICE_EXTRA_BYTES))
            for number in range(made.osds if limit else 0)
        ]
        stack.callback(made.close)
        made.start()
        made.make_pool(POOL)
        made.await_groups(POOL)
        for each in disks:
            each.limit(limit, limit)
        yield made


def bench_seconds(out: str) -> float:
    """Return the seconds that ``rados bench`` reports."""
    found = re.search(r"Total time run: +([\d.]+)", out)
    assert found, out
    return float(found[1])


class Speed:
    """Makes the ways to copy one file into and out of a cluster, with all compared programs."""

    def __init__(
        self, on: Cluster, server: XrdCeph | None, gateway: Gateway | None, size: int
    ) -> None:
        """Make the file to copy, in memory."""
        self.on, self.server, self.gateway, self.size = on, server, gateway, size
        self.folder = Path(tempfile.mkdtemp(prefix="dray-bench-", dir=TMPFS))
        self.file, self.back = self.folder / "file", self.folder / "back"
        self.make(self.file, size)

    def make(self, path: Path, size: int) -> None:
        """Make a file of random bytes, without equal blocks."""
        block = os.urandom(OBJECT)
        with path.open("wb") as file:
            for number in range(size // OBJECT):
                file.write(number.to_bytes(8, "little") + block[8:])

    def url(self, name: str) -> str:
        """Return dray's URL of a file of the pool."""
        return f"rados://{POOL}//{name}?conf={self.on.configuration}"

    def dray(self, *words: Word) -> list[Word]:
        """Return the command ``dray cp`` with these words."""
        return [find_engine(), "cp", "--progress", "none", "--quiet", *words]

    def rados(self, *words: Word) -> list[Word]:
        """Return the command ``rados`` with these words, for the pool."""
        return ["rados", "-c", self.on.configuration, "-p", POOL, *words]

    def bench(self, how: str) -> Way:
        """Return ``rados bench`` as a way. It moves as many objects of 4 MiB as the file has."""
        count = self.size // OBJECT
        words = self.rados("bench", "120", how, "-t", str(DEPTH), "--run-name", "bench")
        if how == "write":
            words += ["-b", str(OBJECT), "--max-objects", str(count), "--no-cleanup"]
        else:
            words += ["--no-verify"]
        return Way(BASE, words, self.size, seconds_of=bench_seconds, warm_bytes=BESIDE_BYTES)

    def by_librados(self) -> list[Way]:
        """Return the ways that use librados alone, or an empty list without a C compiler."""
        program = self.on.folder / "rados_copy"
        compiler = shutil.which("cc")
        if compiler is None:
            return []
        words: list[Word] = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program]
        Process([*words, LIBRADOS, "-lrados"], self.on.folder, "cc").wait().expect(0)
        ways = []
        for how, name in BY_LIBRADOS.items():
            at = f"/librados-{how}"
            copy: list[Word] = [
                program,
                self.on.configuration,
                POOL,
                at,
                self.file,
                str(DEPTH),
                how,
            ]
            before = self.clear(at)
            title = name.format(depth=DEPTH)
            ways.append(
                Way(
                    title,
                    copy,
                    self.size,
                    before=before,
                    seconds_of=bench_seconds,
                    warm_bytes=BESIDE_BYTES,
                )
            )
        return ways

    def clear(self, name: str) -> Callable[[], object]:
        """Return a function that removes a file of the pool, with all its objects.

        The OSDs free the space of removed objects later. The function gives them ``SETTLE_SECONDS``
        for that, so that they then work only for the next copy.
        """

        def remove() -> None:
            names = [each for each in self.on.names(POOL) if each.startswith(f"{name}.")]
            for each in names:
                self.on.remove(POOL, each)
            time.sleep(SETTLE_SECONDS if names else 0)

        return remove

    def into(self) -> list[Way]:
        """Return all ways to copy the file into the cluster."""
        size, file = self.size, self.file

        def way(name: str, words: list[Word], at: str) -> Way:
            return Way(name, words, size, before=self.clear(at), warm_bytes=BESIDE_BYTES)

        ways = [
            self.bench("write"),
            *self.by_librados(),
            way("**dray**", self.dray(file, self.url("dray")), "/dray"),
            way("rados --striper put", self.rados("--striper", "put", "striper", file), "striper"),
        ]
        if self.server:
            words: list[Word] = ["xrdcp", "--nopbar", "--force", file, self.server.at("/xrdcp")]
            pids = [self.server.process.pid]
            before = self.clear("/xrdcp")
            ways.append(Way("xrdcp", words, size, pids, PATIENCE, before))
        return ways + self.by_gateway(file, is_upload=True)

    def out_of(self) -> list[Way]:
        """Return the ways to copy out of the cluster.

        They read the copies that the ways into the cluster have written.
        """
        size, back = self.size, self.back

        def clear() -> None:
            back.unlink(missing_ok=True)

        def same() -> None:
            if not filecmp.cmp(self.file, back, shallow=False):
                raise RuntimeError("a copy differs from the file")

        warm = size + BESIDE_BYTES

        def way(name: str, words: list[Word], servers: Sequence[int] = ()) -> Way:
            env = PATIENCE if servers else {}
            return Way(name, words, size, servers, env, clear, same, warm)

        ways = [
            self.bench("seq"),
            way("**dray**", self.dray(self.url("dray"), back)),
            way("rados --striper get", self.rados("--striper", "get", "striper", back)),
        ]
        if self.server:
            words: list[Word] = ["xrdcp", "--nopbar", "--force", self.server.at("/xrdcp"), back]
            pids = [self.server.process.pid]
            ways.append(way("xrdcp", words, pids))
        return ways + self.by_gateway(back, is_upload=False)

    def by_gateway(self, local: Path, *, is_upload: bool) -> list[Way]:
        """Return the ways to copy through radosgw, or an empty list without a radosgw."""
        gateway = self.gateway
        if gateway is None:
            return []
        pids = [gateway.process.pid]

        warm = 0 if is_upload else self.size + BESIDE_BYTES

        def clear() -> None:
            if not is_upload:
                local.unlink(missing_ok=True)

        def way(name: str, words: list[Word], env: dict[str, str] | None = None) -> Way:
            return Way(name, words, self.size, pids, env or {}, clear, warm_bytes=warm)

        ways = []
        if shutil.which("rclone"):
            remote = "gw:bench/rclone"
            ends: list[Word] = [local, remote] if is_upload else [remote, local]
            words: list[Word] = ["env", "-u", "AWS_CA_BUNDLE", "rclone", "copyto", *ends]
            words += ["--ignore-times", "--s3-no-check-bucket"]
            ways.append(way("rclone, radosgw", words, gateway.env))
        if shutil.which("s3cmd"):
            remote = "s3://bench/s3cmd"
            put: list[Word] = ["put", local, remote]
            both = put if is_upload else ["get", "--force", remote, local]
            words = ["s3cmd", "-c", gateway.configuration, "--no-progress", *both]
            ways.append(way("s3cmd, radosgw", words))
        return ways

    def close(self) -> None:
        """Remove the file and its copies on this host."""
        shutil.rmtree(self.folder, ignore_errors=True)


def missing_gateway() -> str:
    """Return why no radosgw can be started, or an empty text if radosgw can be started."""
    programs = ("radosgw", "radosgw-admin", "s3cmd")
    missing = [each for each in programs if shutil.which(each) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


def servers(
    stack: contextlib.ExitStack, on: Cluster, facts: dict[str, object]
) -> tuple[XrdCeph | None, Gateway | None]:
    """Start the servers of copiers. Store in ``facts`` why a server is left out."""
    server = gateway = None
    if why := xrdceph.find_missing():
        facts["without xrdcp"] = why
    else:
        compile_loopback(on.folder)
        server = xrdceph.start(on, POOL, on.folder)
        stack.callback(server.close)
    if why := missing_gateway():
        facts["without radosgw"] = why
    else:
        gateway = Gateway(on)
        stack.callback(gateway.close)
    return server, gateway


@contextlib.contextmanager
def speed(
    folder: Path | None,
    size: int,
    facts: dict[str, object],
    *,
    has_servers: bool = True,
    limit: int = 0,
) -> Iterator[Speed]:
    """Start the cluster, and also the servers of copiers if ``has_servers`` is true."""
    with contextlib.ExitStack() as stack:
        on = stack.enter_context(cluster(folder, has_keys=True, limit=limit))
        server, gateway = servers(stack, on, facts) if has_servers else (None, None)
        it = Speed(on, server, gateway, size)
        stack.callback(it.close)
        yield it


def memory(it: Speed, sizes: Sequence[int]) -> list[tuple[str, int, int]]:
    """Return direction, bytes and peak memory of copies of several sizes."""
    found = []
    for size in sizes:
        name, null = f"null{size}", f"null:{size}"
        for way, ends in (("into", [null, it.url(name)]), ("out of", [it.url(name), "null:"])):
            with tempfile.TemporaryDirectory() as logs:
                ended = Process(it.dray(*ends), Path(logs), "dray").wait(300).expect(0)
            found.append((way, size, ended.memory_peak))
        it.clear(f"/{name}")()
    return found


def main() -> None:
    """Run the measurement, and print the tables."""
    known = options("ceph", "Measure copies into and out of Ceph beside other programs.")
    known.add_argument("--size", type=int, default=1536, help="MiB of the file")
    known.add_argument("--memory", type=int, nargs="*", default=[1024, 4096], help="MiB, each")
    text = "leave out the copiers that need xrootd or radosgw"
    known.add_argument("--no-servers", action="store_true", help=text)
    text = "MiB/s, the highest rate of the device of each OSD (needs root); 0: no limit"
    known.add_argument("--limit", type=int, default=0, help=text)
    given = known.parse_args()
    # The limit of a device remains after the device is released, so remove it also after a signal.
    catch_signals()
    if why := find_missing() or (limits_reason() if given.limit else ""):
        raise SystemExit(why)
    size = given.size * MIB // OBJECT * OBJECT
    results = Results(command_of(known, given))
    has_servers, limit = not given.no_servers, given.limit * MIB
    facts = results.facts
    with speed(given.folder, size, facts, has_servers=has_servers, limit=limit) as it:
        for case, ways in (("into Ceph", it.into), ("out of Ceph", it.out_of)):
            run_all(results, case, ways(), given.rounds)
            results.write(given.json)
        found = memory(it, [each * MIB for each in given.memory])
    results.tables["memory"] = found
    results.write(given.json)
    for case in ("into Ceph", "out of Ceph"):
        show(table(results.samples, case, BASE))
    lines = ["| direction | MiB | peak memory of dray, MiB |", "|---|---:|---:|"]
    show([*lines, *(f"| {way} | {size >> 20} | {peak >> 20} |" for way, size, peak in found)])


if __name__ == "__main__":
    main()
