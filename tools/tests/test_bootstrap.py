"""Tests that the set-up finds installed programs and names missing ones. Nothing is installed."""

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1]
BASH = shutil.which("bash") or "/bin/bash"
# Programs that the script itself needs. All others are missing until a test adds them.
BASICS = [
    "bash",
    "dirname",
    "sed",
    "sort",
    "head",
    "cat",
    "id",
    "env",
    "mkdir",
    "rm",
    "cksum",
    "mv",
    "grep",
]

HEADERS = [
    "xrootd/XrdCl/XrdClFile.hh",
    "xrootd/XrdOfs/XrdOfsFSctl_PI.hh",
    "xrootd/private/XrdHttp/XrdHttpExtHandler.hh",
    "nlohmann/json.hpp",
    "openssl/ssl.h",
    "rados/librados.h",
    "radosstriper/libradosstriper.h",
]

# The programs that build packages, each with the package of Debian that contains it.
PACKAGE_BUILDERS = {
    "dpkg-shlibdeps": "dpkg-dev",
    "dh": "debhelper",
    "rpmbuild": "rpm",
    "help2man": "help2man",
    "find-debuginfo": "debugedit",
    "eu-strip": "elfutils",
}


class Host:
    """A simulated host: a tree with the script, and a PATH with the programs of a test."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.system = folder / "system"
        for path in (self.tree / "tools", self.tree / "engine", self.bin, self.home):
            path.mkdir(parents=True)
        # No version of Rust reaches this minimum, so the installed one does not count.
        self.rust_floor("99.0")
        for name in BASICS:
            found = shutil.which(name)
            assert found is not None, name
            (self.bin / name).symlink_to(found)
        self.python_floor()

    def rust_floor(self, version: str) -> None:
        shutil.copy(TOOLS / "bootstrap.sh", self.tree / "tools")
        (self.tree / "tools" / "requirements-dev.txt").write_text("")
        (self.tree / "tools" / "requirements-airflow.txt").write_text("")
        (self.tree / "tools" / "requirements-rucio.txt").write_text("")
        (self.tree / "tools" / "requirements-fts.txt").write_text("")
        (self.tree / "tools" / "requirements-sbom.txt").write_text("")
        (self.tree / "tools" / "requirements-manual.txt").write_text("")
        (self.tree / "engine" / "Cargo.toml").write_text(f'rust-version = "{version}"\n')

    def python_floor(self) -> None:
        self.program("python3", f'exec {sys.executable} "$@"')

    def program(self, name: str, body: str, folder: Path | None = None) -> None:
        path = (folder or self.bin) / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{BASH}\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def rust(self, version: str, folder: Path | None = None) -> None:
        self.program("rustc", f"echo 'rustc {version} (abc 2026-01-01)'", folder)
        self.program("cargo", f"echo 'cargo {version}'", folder)

    def complete(self) -> None:
        self.rust("99.1.0")
        for name in ("c++", "rsync", "strace", "faketime", "openssl", "valgrind"):
            self.program(name, "exit 0")
        for name in ("xrootd", "xrdcp"):
            self.program(name, "exit 0")
        for name in ("gfal-copy", "curl", "iperf3", "ceph-mon", "ceph-mgr", "ceph-osd", "rados"):
            self.program(name, "exit 0")
        for name in (*PACKAGE_BUILDERS, "lintian", "cpio", "chromium", "chromedriver", "promtool"):
            self.program(name, "exit 0")
        for name in ("node", "npm", "certbot", "pebble"):
            self.program(name, "exit 0")
        libraries = ["libXrdAccSciTokens-5.so", "libXrdCeph-5.so", "libmagic.so.1"]
        libraries.append("libglobus_ftp_client.so.2")
        libraries = [f"any-linux/{library}" for library in libraries]
        for library in (
            *libraries,
            *(f"python3/dist-packages/{each}" for each in ("rados.any.so", "M2Crypto")),
        ):
            path = self.system / "usr" / "lib" / library
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (self.system / "usr" / "bin").mkdir(parents=True)
        self.program("python3", f'exec {sys.executable} "$@"', self.system / "usr" / "bin")
        broker = self.system / "usr" / "lib" / "rabbitmq" / "bin"
        broker.mkdir(parents=True, exist_ok=True)
        self.program("rabbitmq-server", "exit 0", broker)
        servers = ("nginx", "glusterd", "glusterfs", "globus-gridftp-server")
        for name in (*servers, "mkfs.xfs", "mkfs.btrfs", "debootstrap"):
            (self.system / "usr" / "sbin").mkdir(parents=True, exist_ok=True)
            self.program(name, "exit 0", self.system / "usr" / "sbin")
        for header in HEADERS:
            path = self.system / "usr" / "include" / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        # The stand-in must read its input, because the writer may otherwise find the pipe closed.
        self.program("cc", "cat >/dev/null")

    def python(self) -> Path:
        """Create a stand-in for Python whose environments install nothing and record their
        arguments.
        """
        (self.tree / "tools" / "requirements-airflow.txt").write_text("uv==0\n")
        asked = self.tree / "asked"
        body = f"""case "$*" in
"-m venv "*) mkdir -p "$3/bin"
    for name in python uv; do
        printf '#!{BASH}\\necho %s "$@" >>{asked}\\n' $name >"$3/bin/$name"
        chmod +x "$3/bin/$name"
    done ;;
*) exec {sys.executable} "$@" ;;
esac"""
        self.program("chmod", f'exec {shutil.which("chmod")} "$@"')
        self.program("python3", body)
        self.program("python3", body, self.system / "usr" / "bin")
        return asked

    def run(self, level: str = "test") -> "subprocess.CompletedProcess[str]":
        environment = {"PATH": str(self.bin), "HOME": str(self.home), "DRAY_NO_INSTALL": "1"}
        environment["DRAY_SYSTEM"] = str(self.system)
        environment["DRAY_POSTGRESQL"] = str(self.tree / "postgresql")
        script = self.tree / "tools" / "bootstrap.sh"
        return subprocess.run(
            [BASH, str(script), level],
            check=False,
            env=environment,
            text=True,
            capture_output=True,
            timeout=300,
        )

    def missing(self, level: str = "test") -> list[str]:
        result = self.run(level)
        assert result.returncode == 1, result.stderr
        assert "apt-get install --no-install-recommends" in result.stderr
        for line in result.stderr.splitlines():
            if "by Debian's names: " in line:
                return line.partition("by Debian's names: ")[2].split()
        raise AssertionError(result.stderr)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_bare_host_gets_one_list_of_all_packages(host: Host) -> None:
    assert host.missing("test") == [
        "rustc-web",
        "cargo-web",
        "rustfmt-web",
        "rust-web-clippy",
        "gcc",
        "libc6-dev",
        "g++",
        "rsync",
        "strace",
        "faketime",
        "openssl",
        "valgrind",
        "xfsprogs",
        "btrfs-progs",
        "xrootd-server",
        "xrootd-server-plugins",
        "xrootd-client",
        "xrootd-client-plugins",
        "nginx-light",
        "xrootd-scitokens-plugins",
        "gfal2-util-scripts",
        "gfal2-plugin-http",
        "gfal2-plugin-xrootd",
        "curl",
        "ceph-mon",
        "ceph-mgr",
        "ceph-osd",
        "ceph-common",
        "librados-dev",
        "libradosstriper-dev",
        "python3-rados",
        "xrootd-ceph-plugins",
        "glusterfs-server",
        "glusterfs-client",
        "globus-gridftp-server-progs",
        "libglobus-ftp-client2",
        "libmagic1",
        "python3-m2crypto",
        "rabbitmq-server",
        "chromium",
        "chromium-driver",
        "certbot",
        "pebble",
        "prometheus",
        "iperf3",
        "lintian",
        "debootstrap",
        "cpio",
        *PACKAGE_BUILDERS.values(),
        "libxrootd-client-dev",
        "libxrootd-server-dev",
        "libxrootd-private-dev",
        "nlohmann-json3-dev",
        "libssl-dev",
        "nodejs",
        "npm",
    ]
    assert not (host.tree / ".venv").exists()


def test_xrootd_builds_need_its_headers_and_no_servers(host: Host) -> None:
    host.complete()
    (host.system / "usr" / "include" / HEADERS[0]).unlink()
    (host.bin / "xrootd").unlink()
    assert host.missing("xrootd") == ["libxrootd-client-dev"]


def test_packages_need_their_builders_and_xrootd_headers(host: Host) -> None:
    host.complete()
    (host.system / "usr" / "include" / HEADERS[0]).unlink()
    for name in ("xrootd", "lintian", *PACKAGE_BUILDERS):
        (host.bin / name).unlink()
    assert host.missing("packages") == [*PACKAGE_BUILDERS.values(), "libxrootd-client-dev"]


def test_building_needs_fewer_packages_than_testing(host: Host) -> None:
    assert host.missing("build") == ["rustc-web", "cargo-web", "gcc", "libc6-dev"]


def test_the_console_needs_node(host: Host) -> None:
    host.complete()
    for name in ("node", "npm"):
        (host.bin / name).unlink()
    assert host.missing("console") == ["nodejs", "npm"]
    host.program("node", "exit 0")
    host.program("npm", "exit 0")
    # Building the console does not install Airflow.
    asked = host.python()
    assert host.run("console").returncode == 0
    assert "requirements-airflow" not in asked.read_text()


def test_the_manual_needs_only_its_own_environment(host: Host) -> None:
    assert host.missing("manual") == host.missing("build")
    host.complete()
    asked = host.python()
    assert host.run("manual").stderr.count("filling") == 2
    lines = asked.read_text().splitlines()
    assert lines[-1].endswith("requirements-manual.txt")
    assert "requirements-airflow" not in asked.read_text()
    assert host.run("manual").stderr == ""


def test_the_demo_needs_no_more_programs_than_building(host: Host) -> None:
    assert host.missing("demo") == ["rustc-web", "cargo-web", "gcc", "libc6-dev"]


def test_celery_needs_servers_too(host: Host) -> None:
    assert host.missing("celery") == [*host.missing("test"), "postgresql", "redis-server"]
    host.complete()
    assert host.missing("celery") == ["postgresql", "redis-server"]
    programs = host.tree / "postgresql" / "15" / "bin"
    programs.mkdir(parents=True)
    host.program("initdb", "exit 0", programs)
    assert host.missing("celery") == ["redis-server"]


def test_airflow_is_installed_once_and_only_on_request(host: Host) -> None:
    host.complete()
    asked = host.python()
    assert host.run("build").returncode == 0
    assert "requirements-airflow" not in asked.read_text()
    result = host.run("demo")
    assert result.returncode == 0, result.stderr
    lines = asked.read_text().splitlines()
    assert lines[-2].endswith(" uv==0")
    assert lines[-1].startswith("uv pip install")
    assert lines[-1].endswith("requirements-airflow.txt")
    # Packages of another level are not removed and not installed twice.
    for level in ("build", "demo"):
        assert host.run(level).stderr == ""
    assert asked.read_text().splitlines() == lines
    # Rucio has a separate environment.
    assert host.run("test").stderr.count("filling") == 4
    lines = asked.read_text().splitlines()
    assert lines[-4].endswith("requirements-rucio.txt")
    # The stock client of FTS, the schemas of SBOMs and MkDocs have separate environments too.
    assert lines[-3].endswith("requirements-fts.txt")
    assert lines[-2].endswith("requirements-sbom.txt")
    assert lines[-1].endswith("requirements-manual.txt")
    assert host.run("test").stderr == ""
    (host.tree / "tools" / "requirements-airflow.txt").write_text("uv==1\n")
    assert host.run("build").stderr == ""
    assert "adding Airflow" in host.run("demo").stderr


def test_pip_is_used_if_uv_reaches_no_index(host: Host) -> None:
    host.complete()
    asked = host.python()
    assert host.run("build").returncode == 0
    host.program("uv", "exit 2", host.tree / ".venv" / "bin")
    assert host.run("demo").returncode == 0
    last = asked.read_text().splitlines()[-1]
    assert last.startswith("python -m pip install")
    assert last.endswith("requirements-airflow.txt")


def test_rust_below_the_floor_does_not_count(host: Host) -> None:
    host.complete()
    host.rust("98.9.9")
    assert "rustc-web" in host.missing()
    host.rust_floor("100.0")
    host.rust("99.10.0")
    assert "rustc-web" in host.missing()


def test_rust_that_does_not_run_does_not_count(host: Host) -> None:
    # rustup leaves such a program if no toolchain is installed.
    host.complete()
    host.program("rustc", "echo 'error: no default toolchain' >&2; exit 1")
    assert "rustc-web" in host.missing()


def test_newer_rust_off_the_path_is_found(host: Host) -> None:
    host.complete()
    host.rust("1.63.0")
    cargo_bin = host.home / ".cargo" / "bin"
    cargo_bin.mkdir(parents=True)
    host.rust("99.0.0", cargo_bin)
    result = host.run("build")
    assert result.returncode == 0, result.stderr
    assert str(cargo_bin) in (host.tree / ".venv" / "dray-env.sh").read_text()


def test_rust_without_its_tools_gets_the_rustup_command(host: Host) -> None:
    host.complete()
    host.program("cargo", '[ "$1" = --version ] && echo "cargo 99.1.0"')
    result = host.run("test")
    assert result.returncode == 1
    assert "rustup component add rustfmt clippy" in result.stderr
    assert host.run("build").returncode == 0


def test_complete_host_gets_an_environment_once(host: Host) -> None:
    host.complete()
    result = host.run()
    assert result.returncode == 0, result.stderr
    stamp = host.tree / ".venv" / "dray-stamp"
    written = stamp.stat().st_mtime_ns
    assert host.run().stderr == ""
    assert stamp.stat().st_mtime_ns == written
    # The environment is filled again if the lock has changed or the tree has moved.
    (host.tree / "tools" / "requirements-dev.txt").write_text("# other\n")
    assert "filling" in host.run().stderr


def test_unknown_level_is_refused(host: Host) -> None:
    assert host.run("everything").returncode == 1
