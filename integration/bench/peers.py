"""The movers that are compared with dray: their commands, and the work that each one omits."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench import machine, xrootd
from integration.bench.examples import example
from integration.bench.tools import (
    CLEAR,
    COMPARED,
    COPY,
    ENCRYPTED,
    LIMIT,
    NOBODY,
    PATH,
    THIRD,
    Command,
    Scene,
    Tool,
    at_once,
)
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.harness.program import Word

#: Address of servers if there is no far end.
HERE = "127.0.0.1"
#: Path at which tools/bootstrap.sh puts a newer rclone.
RCLONE = ROOT / ".tools" / "go" / "bin" / "rclone"
CIPHER = "aes128-gcm@openssh.com"
BLOCK_BYTES = 4 << 20
#: Options with which GridFTP's client compares each file's checksums, with the cheapest algorithm
#: of the servers.
COMPARE = ("-verify-checksum", "-checksum-alg", "ADLER32")
#: As ``COMPARE``, with the only checksum algorithm that the client supports for files at its own
#: end.
COMPARE_OWN = ("-verify-checksum", "-checksum-alg", "MD5")
#: Ports of GridFTP's data connections. No other process uses this network.
PORTS = "30000,31999"

MEMORY = """
import ctypes, json, sys, time
left, block = int(sys.argv[1]), 64 << 20
source, sink = (ctypes.create_string_buffer(b"x" * block, block) for _ in range(2))
began = time.monotonic()
while left > 0:
    ctypes.memmove(sink, source, min(left, block))
    left -= block
print(json.dumps({"seconds": time.monotonic() - began}))
"""


# --- limits of the machine ------------------------------------------------------------------------


def _memory(scene: Scene) -> Command:
    words: list[Word] = [sys.executable, "-c", MEMORY, str(scene.data.size)]
    return Command(words, seconds=lambda said: float(json.loads(said)["seconds"]))


def _iperf(streams: int) -> Callable[[Scene], Command]:
    def prepare(scene: Scene) -> Command:
        port, there = machine.free_port(), scene.ends.there
        scene.serve("iperf3", port, ["iperf3", "-s", "-B", there, "-p", str(port)])
        words: list[Word] = ["iperf3", "-c", there, "-p", str(port), "-P", str(streams)]
        words += ["-n", str(scene.data.size), "-J"]
        return Command(words, seconds=iperf_seconds)

    return prepare


def iperf_seconds(said: str) -> float:
    """Return the seconds until all data had arrived, from the output of iperf3."""
    return float(json.loads(said)["end"]["sum_received"]["seconds"])


def _by_hand(scene: Scene) -> Command:
    port, program = machine.free_port(), example("by_hand")
    at = f"{HERE}:{port}"
    scene.serve("by-hand", port, [program, "sink", at, scene.sink])
    return Command([program, "source", at, scene.data.path], summing=summing_share)


def summing_share(said: str) -> float:
    """Return the fraction of its time that an end spent on checksums: the larger of both ends."""
    return float(max(json.loads(said)["summing"].values()))


# --- copies on one host, and by daemons of the user who runs the benchmark ------------------------


def _cp(scene: Scene) -> Command:
    return Command(["cp", "-r", f"{scene.data.path}/.", f"{scene.sink}/"])


def _rsync(scene: Scene) -> Command:
    port, there = machine.free_port(), scene.ends.there
    lines = [f"address = {there}", f"port = {port}", "reverse lookup = no"]
    if os.getuid() == 0:
        # Without its own root directory, rsync writes other targets into some of the links.
        lines += ["uid = 0", "gid = 0", "use chroot = yes"]
    else:
        lines += ["use chroot = no"]
    lines += ["[sink]", f"path = {scene.sink}", "read only = no", "munge symlinks = no"]
    config = scene.write("rsyncd.conf", lines)
    scene.serve("rsync", port, ["rsync", "--daemon", "--no-detach", f"--config={config}"])
    words: list[Word] = ["rsync", "-a", "--whole-file", "--inplace", f"{scene.data.path}/"]
    return Command([*words, f"rsync://{there}:{port}/sink/"])


# --- GridFTP --------------------------------------------------------------------------------------


def _gridftp_server(scene: Scene, name: str, *, is_near: bool = False) -> str:
    """Start a GridFTP server. Return its URL."""
    port = machine.free_port()
    address = scene.ends.here if is_near else scene.ends.there
    home = scene.folder / name
    words: list[Word] = [*scene.give_to_nobody(home), "globus-gridftp-server", "-aa"]
    words += ["-p", str(port), "-data-interface", address]
    if not scene.ends.far:
        # This option needs a host name, which only the host's network provides.
        words += ["-control-interface", address]
    home.mkdir(exist_ok=True)
    env = {"HOME": str(home), "GLOBUS_TCP_PORT_RANGE": PORTS}
    scene.serve(name, port, [*words, "-log-level", "ERROR"], env=env, is_near=is_near)
    return f"ftp://{address}:{port}"


def _gridftp(scene: Scene, source: str, sink: str, *more: Word) -> Command:
    words: list[Word] = ["globus-url-copy", "-fast", *more, "-p", "4"]
    words += ["-cc", str(scene.data.workers), "-r", "-cd", "-bs", str(BLOCK_BYTES)]
    env = {"GLOBUS_TCP_PORT_RANGE": PORTS}
    return Command([*words, f"{source}{scene.data.path}/", f"{sink}{scene.sink}/"], env)


def _gridftp_client(*more: Word) -> Callable[[Scene], Command]:
    def prepare(scene: Scene) -> Command:
        return _gridftp(scene, "file://", _gridftp_server(scene, "gridftp"), *more)

    return prepare


def _gridftp_jobs(*more: Word) -> Callable[[Scene], Command]:
    """Request each job with the options that BigData Express's authors used."""

    def prepare(scene: Scene) -> Command:
        near = _gridftp_server(scene, "gridftp-from", is_near=True)
        far = _gridftp_server(scene, "gridftp-to")
        words: list[Word] = ["globus-url-copy", "-fast", "-pp", "-p", "8", "-cc", "4", "-r", "-cd"]
        words += ["-bs", str(BLOCK_BYTES), *more]
        source, sink = f"{near}{scene.data.path}", f"{far}{scene.sink}"
        asked = [[*words, f"{source}/{job}", f"{sink}/{job}"] for job in scene.jobs()]
        return Command(at_once(asked), {"GLOBUS_TCP_PORT_RANGE": PORTS})

    return prepare


def _gridftp_third(*more: Word) -> Callable[[Scene], Command]:
    def prepare(scene: Scene) -> Command:
        near = _gridftp_server(scene, "gridftp-from", is_near=True)
        return _gridftp(scene, near, _gridftp_server(scene, "gridftp-to"), "-pp", *more)

    return prepare


# --- XRootD ---------------------------------------------------------------------------------------


def _xrootd_server(scene: Scene, name: str, *more: str) -> int:
    # Export the folder above the sink, because the server does not accept its root as a
    # destination.
    return xrootd.server(scene, name, scene.sink.parent, *more)


def _xrdcp(scene: Scene, url: str, env: dict[str, str], *more: Word) -> Command:
    words: list[Word] = ["xrdcp", "--nopbar", "--force", *more]
    if scene.data.is_one_file:
        (file,) = scene.data.path.iterdir()
        return Command([*words, "--streams", "4", file, f"{url}//sink/{file.name}"], env)
    words += ["--recursive", "--parallel", "4", scene.data.path, f"{url}//sink/"]
    return Command(words, env, below=scene.data.path.name)


def _xrootd(env: dict[str, str], *more: Word) -> Callable[[Scene], Command]:
    def prepare(scene: Scene) -> Command:
        port = _xrootd_server(scene, "xrootd", "xrootd.chksum max 4 adler32")
        return _xrdcp(scene, f"root://{HERE}:{port}", env, *more)

    return prepare


def _xrootd_tls(scene: Scene) -> Command:
    key, certificate = scene.folder / "tls.key", scene.folder / "tls.pem"
    words: list[Word] = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=localhost", "-addext", f"subjectAltName=DNS:localhost,IP:{HERE}"]
    subprocess.run(
        [*words, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60
    )
    if os.geteuid() == 0:
        os.chown(key, NOBODY, NOBODY)
    # Clients find the certificate of an authority by a file name that contains a hash.
    authorities = scene.folder / "authorities"
    authorities.mkdir()
    (authorities / "here.pem").symlink_to(certificate)
    subprocess.run(["openssl", "rehash", authorities], check=True, capture_output=True, timeout=60)
    tls = [f"xrd.tls {certificate} {key}", f"xrd.tlsca certfile {certificate}"]
    port = _xrootd_server(scene, "xrootd", *tls, "xrootd.tls all")
    env = {"X509_CERT_DIR": str(authorities), "XRD_CPUSEPGWRTRD": "0"}
    return _xrdcp(scene, f"roots://localhost:{port}", env)


# --- from a web server ----------------------------------------------------------------------------


def _nginx(scene: Scene) -> int:
    port = machine.free_port()
    folder = scene.folder / "nginx"
    folder.mkdir()
    user = ["user root;"] if os.geteuid() == 0 else []
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    config = scene.write(
        "nginx.conf",
        [
            "daemon off;",
            f"worker_processes {os.cpu_count() or 1};",
            f"pid {folder}/pid;",
            *user,
            "events { worker_connections 512; }",
            "http {",
            "access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;",
            # Limit the data that a worker sends on one connection before it serves another one.
            "sendfile_max_chunk 4m;",
            *(f"{kind}_temp_path {folder}/{kind};" for kind in kinds),
            f"server {{ listen {HERE}:{port}; root {scene.data.path}; autoindex on; }}",
            "}",
        ],
    )
    scene.serve("nginx", port, ["nginx", "-e", folder / "errors", "-c", config])
    return port


def _rclone(program: Word) -> Callable[[Scene], Command]:
    def prepare(scene: Scene) -> Command:
        url = f"http://{HERE}:{_nginx(scene)}/"
        config = scene.write("rclone.conf", [""])
        words: list[Word] = [program, "copy", "--config", config, "--checkers", "8"]
        words += ["--transfers", str(scene.data.workers), "--multi-thread-streams", "4"]
        return Command([*words, f':http,url="{url}":', scene.sink])

    return prepare


def _aria2(scene: Scene) -> Command:
    port = _nginx(scene)
    lines = []
    for path in scene.data.path.rglob("*"):
        if path.is_file() and not path.is_symlink():
            below = path.relative_to(scene.data.path)
            lines += [f"http://{HERE}:{port}/{below}", f"  out={below}"]
    asked = scene.write("aria2.list", lines)
    words: list[Word] = ["aria2c", "--quiet", "--no-conf", "--input-file", asked]
    words += ["--dir", scene.sink, "-x", "4", "-s", "4", "-j", str(scene.data.workers)]
    return Command([*words, "--file-allocation=none", "--disk-cache=64M"])


# --- over ssh -------------------------------------------------------------------------------------


def _sshd(scene: Scene) -> Path:
    """Start an SSH server with its own keys. Return the configuration of the client."""
    port = machine.free_port()
    for name in ("host", "user"):
        words: list[Word] = ["ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
        subprocess.run([*words, "-f", scene.folder / name], check=True, timeout=60)
    if os.geteuid() == 0:
        # Debian's server needs this folder, which only Debian's start script creates.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    config = scene.write(
        "sshd.conf",
        [
            f"ListenAddress {HERE}",
            f"Port {port}",
            f"HostKey {scene.folder}/host",
            f"AuthorizedKeysFile {scene.folder}/user.pub",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin prohibit-password",
            f"PidFile {scene.folder}/sshd.pid",
            "Subsystem sftp internal-sftp",
        ],
    )
    # sshd executes its program again for each connection, and needs the absolute path for this.
    program = shutil.which("sshd", path=PATH) or "sshd"
    scene.serve("sshd", port, [program, "-D", "-e", "-f", config])
    return scene.write(
        "ssh.conf",
        [
            "Host *",
            f"HostName {HERE}",
            f"Port {port}",
            f"User {getpass.getuser()}",
            f"IdentityFile {scene.folder}/user",
            "IdentitiesOnly yes",
            "StrictHostKeyChecking no",
            "UserKnownHostsFile /dev/null",
            "LogLevel ERROR",
            f"Ciphers {CIPHER}",
        ],
    )


def _tar(scene: Scene) -> Command:
    config = _sshd(scene)
    # If tar kept hard links, it would move only some of the data.
    pack = f"tar --hard-dereference -C {scene.data.path} -cf - ."
    return Command(["sh", "-c", f"{pack} | ssh -F {config} there tar -C {scene.sink} -xf -"])


def _scp(scene: Scene) -> Command:
    config = _sshd(scene)
    words: list[Word] = ["scp", "-q", "-r", "-F", config]
    return Command([*words, f"{scene.data.path}/.", f"there:{scene.sink}/"])


# --- unavailable tools ----------------------------------------------------------------------------


def _nothing(_: Scene) -> Command:
    raise AssertionError("a peer that cannot be had is never started")


def _absent(name: str, title: str, kind: str, why: str) -> Tool:
    return Tool(name, title, kind, _nothing, unavailable=why)


GRIDFTP = ("globus-gridftp-server", "globus-url-copy")
SSH = ("sshd", "ssh", "ssh-keygen")
#: EScp's time divided by that of ``cp -r``, by data set. These times were measured by hand, at
#: another time on a machine of the same kind.
ESCP = {"a": 2.06, "b": 1.79, "c": 1.74, "d": 2.0}
UNPACKAGED = "in no package registry; taken by hand once, on another hour of such a machine:"

TOOLS = (
    Tool("memory", "copy in memory, one thread", LIMIT, _memory, is_checked=False),
    *(
        Tool(
            f"iperf3-{streams}",
            f"iperf3, {streams} stream{'s' if streams > 1 else ''}",
            LIMIT,
            _iperf(streams),
            needs=("iperf3",),
            version=("iperf3", "--version"),
            is_checked=False,
            travels=True,
        )
        for streams in (1, 4)
    ),
    Tool(
        "by-hand",
        "the work by hand: read, sum, send; receive, sum, write",
        LIMIT,
        _by_hand,
        needs=("cargo",),
        # The program copies files and folders, but no links.
        sets="abd",
        example="by_hand",
    ),
    Tool("cp", "cp -r", COPY, _cp, needs=("cp",), version=("cp", "--version")),
    Tool(
        "rsync",
        "rsync daemon",
        CLEAR,
        _rsync,
        ("rsync",),
        ("rsync", "--version"),
        travels=True,
    ),
    Tool(
        "gridftp",
        "GridFTP, client to server",
        CLEAR,
        _gridftp_client(),
        GRIDFTP,
        ("globus-gridftp-server", "--version"),
        drops_links=True,
        travels=True,
    ),
    Tool(
        "gridftp-third",
        "GridFTP between two servers",
        THIRD,
        _gridftp_third(),
        GRIDFTP,
        ("globus-url-copy", "-version"),
        drops_links=True,
        travels=True,
    ),
    Tool(
        "gridftp-compared",
        "GridFTP, client to server, -verify-checksum (MD5)",
        COMPARED,
        _gridftp_client(*COMPARE_OWN),
        GRIDFTP,
        ("globus-gridftp-server", "--version"),
        drops_links=True,
        travels=True,
    ),
    Tool(
        "gridftp-third-compared",
        "GridFTP between two servers, -verify-checksum (ADLER32)",
        COMPARED,
        _gridftp_third(*COMPARE),
        GRIDFTP,
        ("globus-url-copy", "-version"),
        drops_links=True,
        travels=True,
    ),
    Tool(
        "xrootd",
        "XRootD, as shipped",
        CLEAR,
        _xrootd({}),
        ("xrootd", "xrdcp"),
        ("xrdcp", "--version"),
        is_open=True,
        drops_links=True,
    ),
    Tool(
        "xrootd-plain",
        "XRootD, XRD_CPUSEPGWRTRD=0",
        CLEAR,
        _xrootd({"XRD_CPUSEPGWRTRD": "0"}),
        ("xrootd", "xrdcp"),
        ("xrdcp", "--version"),
        is_open=True,
        drops_links=True,
    ),
    Tool(
        "xrootd-plain-compared",
        "XRootD, XRD_CPUSEPGWRTRD=0, --cksum adler32",
        COMPARED,
        _xrootd({"XRD_CPUSEPGWRTRD": "0"}, "--cksum", "adler32"),
        ("xrootd", "xrdcp"),
        ("xrdcp", "--version"),
        is_open=True,
        drops_links=True,
    ),
    Tool(
        "xrootd-tls",
        "XRootD, roots://",
        ENCRYPTED,
        _xrootd_tls,
        ("xrootd", "xrdcp", "openssl"),
        ("xrdcp", "--version"),
        is_open=True,
        drops_links=True,
    ),
    Tool(
        "rclone",
        "rclone from nginx",
        CLEAR,
        _rclone("rclone"),
        ("rclone", "nginx"),
        ("rclone", "version"),
        hides_dots=True,
        drops_links=True,
    ),
    Tool(
        "rclone-new",
        "rclone, newer, from nginx",
        CLEAR,
        _rclone(RCLONE),
        (str(RCLONE), "nginx"),
        (str(RCLONE), "version"),
        remedy="tools/bootstrap.sh bench builds it where Go can fetch it",
        hides_dots=True,
        drops_links=True,
    ),
    Tool(
        "aria2",
        "aria2 from nginx",
        CLEAR,
        _aria2,
        ("aria2c", "nginx"),
        ("aria2c", "--version"),
        drops_links=True,
    ),
    Tool("tar-ssh", "tar, ssh, tar", ENCRYPTED, _tar, (*SSH, "tar"), ("ssh", "-V")),
    Tool("scp", "scp -r", ENCRYPTED, _scp, (*SSH, "scp"), ("ssh", "-V"), drops_links=True),
    _absent(
        "escp",
        "EScp 0.9",
        ENCRYPTED,
        f"{UNPACKAGED} {', '.join(f'{ratio:.2f}' for ratio in ESCP.values())} times cp -r on"
        f" {', '.join(ESCP)}",
    ),
    _absent("bbcp", "bbcp", CLEAR, f"{UNPACKAGED} 2.2 and 1.6 times cp -r on a and b, and 11 on d"),
    _absent("fdt", "FDT", CLEAR, f"{UNPACKAGED} 4.4, 3.3 and 12 times cp -r on a, b and d"),
    _absent("mdtmftp", "mdtmFTP", CLEAR, "neither its source nor a package can be had"),
)

#: Tools of which several commands run concurrently, one for each job.
JOBS = tuple(
    Tool(
        name,
        f"GridFTP between two servers, -p 8 -cc 4{words}",
        kind,
        _gridftp_jobs(*more),
        GRIDFTP,
        ("globus-url-copy", "-version"),
        drops_links=True,
        travels=True,
    )
    for name, words, kind, more in (
        ("gridftp-third", "", THIRD, ()),
        ("gridftp-third-compared", " -verify-checksum (ADLER32)", COMPARED, COMPARE),
    )
)
