#!/usr/bin/env bash
# Prepares this host to build and test dray. Every make target runs this script. If nothing is
# missing, it takes well under a second.
#
#   tools/bootstrap.sh build    what `make build`, `make wheel` and `make demo-engine` need
#   tools/bootstrap.sh demo     the same as `build`, and Airflow
#   tools/bootstrap.sh test     the same as `demo`, and what the checks and tests need (the default)
#   tools/bootstrap.sh celery   the same as `test`, and PostgreSQL and Redis
#   tools/bootstrap.sh xrootd   the same as `build`, and XRootD's headers
#   tools/bootstrap.sh packages the same as `xrootd`, and the tools that build Debian and RPM packages
#   tools/bootstrap.sh console  the same as `build`, and Node.js with npm
#   tools/bootstrap.sh manual   the same as `build`, and the program that builds the manual as a site
#   tools/bootstrap.sh bench    the same as `build`, and the copy tools that dray is compared with.
#                               For a tool that cannot be installed, the benchmark reports this.
#
# The script looks for Rust, a C compiler, Python with venv and a few programs. As root on a
# Debian-like host, it installs missing programs with apt-get. Otherwise it prints the command that
# installs them, and exits with code 1. Then it fills .venv from the locked lists
# (tools/requirements-dev.txt, and tools/requirements-airflow.txt for the levels with Airflow) and
# writes .venv/dray-env.sh, which the Makefile sources. For the tests, Rucio has its own
# environment, .tools/rucio (tools/requirements-rucio.txt). The stock client of FTS is in .tools/fts
# (tools/requirements-fts.txt), the schemas of SBOMs are in .tools/sbom
# (tools/requirements-sbom.txt), and the program that builds the manual is in .tools/manual
# (tools/requirements-manual.txt).
#
# Environment variables: PYTHON (a Python >= 3.10; default python3), DRAY_NO_INSTALL=1 (never call
# apt-get).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
level=${1:-test}
# Folder that contains the system's folders: /, except in tests.
system=${DRAY_SYSTEM:-}
python=
venv=$root/.venv
requirements=$root/tools/requirements-dev.txt
requirements_airflow=$root/tools/requirements-airflow.txt
# Rucio has a separate environment, because it needs older libraries than the tools in .venv.
requirements_rucio=$root/tools/requirements-rucio.txt
rucio=$root/.tools/rucio
# The stock client of FTS has a separate environment. It needs Debian's M2Crypto, because pip cannot
# build M2Crypto on every host, so the environment uses Debian's Python and its packages.
requirements_fts=$root/tools/requirements-fts.txt
fts=$root/.tools/fts
# Only a test of the packages uses the schemas of SBOMs.
requirements_sbom=$root/tools/requirements-sbom.txt
sbom=$root/.tools/sbom
# MkDocs and its libraries, only for the manual.
requirements_manual=$root/tools/requirements-manual.txt
manual=$root/.tools/manual
# Package with the tree of many small files for the benchmark (see integration/bench/datasets.py).
linux_source=/usr/src/linux-source-6.1.tar.xz
# rclone as its authors release it, because Debian's version is years older. Debian's is kept too.
rclone=github.com/rclone/rclone@v1.75.1

say() { printf 'bootstrap: %s\n' "$*" >&2; }
die() {
    say "$@"
    exit 1
}

case $level in
build | demo | test | celery | xrootd | packages | console | manual | bench) ;;
*) die "unknown level '$level': say build, demo, test, celery, xrootd, packages, console, manual or bench" ;;
esac

# --- what is there ------------------------------------------------------------------------------

# version_at_least HAVE WANT
version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# The oldest Rust that may build the engine: `rust-version` of the workspace.
rust_floor() {
    sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' "$root/engine/Cargo.toml" | head -n 1
}

# rust_version_in FOLDER: the version of the rustc there, or nothing. A rustup shim without a
# toolchain exists but does not run. So the function runs rustc and reads its answer.
rust_version_in() {
    [ -x "$1/cargo" ] && [ -x "$1/rustc" ] || return 0
    PATH="$1:$PATH" cargo --version >/dev/null 2>&1 || return 0
    PATH="$1:$PATH" rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9][0-9.]*\).*/\1/p'
}

# find_rust: print the folder of the first Rust that is new enough.
find_rust() {
    local floor folder version
    floor=$(rust_floor)
    local candidates=()
    if command -v cargo >/dev/null 2>&1; then
        candidates+=("$(dirname "$(command -v cargo)")")
    fi
    candidates+=("${CARGO_HOME:-${HOME:-/nonexistent}/.cargo}/bin" /usr/local/bin /usr/bin)
    for folder in "${candidates[@]}"; do
        version=$(rust_version_in "$folder")
        if [ -n "$version" ] && version_at_least "$version" "$floor"; then
            printf '%s\n' "$folder"
            return 0
        fi
    done
    return 1
}

is_for_tests() { [ "$level" = test ] || [ "$level" = celery ]; }
needs_airflow() { is_for_tests || [ "$level" = demo ]; }
has_xrootd_parts() { [ "$level" = xrootd ] || [ "$level" = packages ]; }
has() { command -v "$1" >/dev/null 2>&1; }
# Debian's PATH does not contain the folders of server programs.
has_postgresql() {
    has initdb || compgen -G "${DRAY_POSTGRESQL:-/usr/lib/postgresql}/*/bin/initdb" >/dev/null
}
# The PATH of ordinary users does not contain the administrator's programs.
has_by_root() { PATH="$PATH:$system/usr/sbin:$system/sbin" has "$1"; }
has_header() { [ -e "$system/usr/include/$1" ]; }
# Of any architecture.
has_library() { compgen -G "$system/usr/lib*/$1" >/dev/null || compgen -G "$system/usr/lib/*/$1" >/dev/null; }
has_c_compiler() {
    has cc && echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - 2>/dev/null
}
has_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }
has_rustfmt() { PATH="$1:$PATH" cargo fmt --version >/dev/null 2>&1; }
has_clippy() { PATH="$1:$PATH" cargo clippy --version >/dev/null 2>&1; }

# find_python: print the first Python that is new enough and can make environments. The one on PATH
# may have been built without venv, although the Python of the distribution is complete.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 /usr/bin/python3}; do
        if has_python "$candidate" && has_venv "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

# find_missing: set `missing` to the Debian packages this host lacks, `rust` to Rust's folder, and
# `python`.
find_missing() {
    missing=()
    python=$(find_python) || missing+=(python3 python3-venv)
    if ! rust=$(find_rust); then
        rust=
        missing+=(rustc-web cargo-web)
        ! is_for_tests || missing+=(rustfmt-web rust-web-clippy)
    elif is_for_tests; then
        # Packages can complete only a Rust that was installed from packages. For rustup, see the
        # message below.
        if [ "$rust" = /usr/bin ]; then
            has_rustfmt "$rust" || missing+=(rustfmt-web)
            has_clippy "$rust" || missing+=(rust-web-clippy)
        fi
    fi
    has_c_compiler || missing+=(gcc libc6-dev)
    if is_for_tests; then
        # The fuzz targets use libFuzzer, which is written in C++.
        has c++ || missing+=(g++)
        has rsync || missing+=(rsync)
        has strace || missing+=(strace)
        # Its library steps the clocks of programs (dray chaos).
        has faketime || missing+=(faketime)
        has openssl || missing+=(openssl)
        has valgrind || missing+=(valgrind)
        # XFS, a file system whose files can share blocks.
        has_by_root mkfs.xfs || missing+=(xfsprogs)
        # btrfs, a file system with quotas that needs nothing but its programs.
        has_by_root mkfs.btrfs || missing+=(btrfs-progs)
        # The tests start real servers, and use their stock clients.
        has xrootd || missing+=(xrootd-server xrootd-server-plugins)
        has xrdcp || missing+=(xrootd-client xrootd-client-plugins)
        has_by_root nginx || missing+=(nginx-light)
        # Authorisation by tokens, and the client that most sites use.
        has_library libXrdAccSciTokens-5.so || missing+=(xrootd-scitokens-plugins)
        has gfal-copy || missing+=(gfal2-util-scripts gfal2-plugin-http gfal2-plugin-xrootd)
        has curl || missing+=(curl)
        # The tests of storage systems start clusters of plain processes.
        has ceph-mon || missing+=(ceph-mon)
        has ceph-mgr || missing+=(ceph-mgr)
        has ceph-osd || missing+=(ceph-osd)
        has rados || missing+=(ceph-common)
        has_header rados/librados.h || missing+=(librados-dev)
        has_header radosstriper/libradosstriper.h || missing+=(libradosstriper-dev)
        # Debian's Python loads Debian's bindings.
        compgen -G "$system/usr/lib/python3/dist-packages/rados.*.so" >/dev/null ||
            missing+=(python3-rados)
        has_library libXrdCeph-5.so || missing+=(xrootd-ceph-plugins)
        has_by_root glusterd || missing+=(glusterfs-server)
        has_by_root glusterfs || missing+=(glusterfs-client)
        has_by_root globus-gridftp-server || missing+=(globus-gridftp-server-progs)
        has_library libglobus_ftp_client.so.2 || missing+=(libglobus-ftp-client2)
        # Rucio's client uses this library to find the type of a file.
        has_library libmagic.so.1 || missing+=(libmagic1)
        # The stock client of FTS uses this library.
        compgen -G "$system/usr/lib/python3/dist-packages/M2Crypto*" >/dev/null ||
            missing+=(python3-m2crypto)
        # The STOMP broker of the tests of messages.
        [ -x "$system/usr/lib/rabbitmq/bin/rabbitmq-server" ] || missing+=(rabbitmq-server)
        # The tests of the web console use a real browser.
        has chromium || missing+=(chromium)
        has chromedriver || missing+=(chromium-driver)
        # A stock ACME client renews a certificate of an ACME server for tests.
        has certbot || missing+=(certbot)
        has pebble || missing+=(pebble)
        # promtool checks the alert rules.
        has promtool || missing+=(prometheus)
        # iperf3 measures plain TCP, with which the copies over a path are compared.
        has iperf3 || missing+=(iperf3)
        # A checker of Debian packages, a clean Debian to install them in, an unpacker for RPM.
        has lintian || missing+=(lintian)
        has_by_root debootstrap || missing+=(debootstrap)
        has cpio || missing+=(cpio)
    elif has_xrootd_parts; then
        has c++ || missing+=(g++)
    fi
    if [ "$level" = packages ] || is_for_tests; then
        has dpkg-shlibdeps || missing+=(dpkg-dev)
        has dh || missing+=(debhelper)
        has rpmbuild || missing+=(rpm)
        has help2man || missing+=(help2man)
        # With these two, rpm splits off the debug information.
        has find-debuginfo || missing+=(debugedit)
        has eu-strip || missing+=(elfutils)
    fi
    if has_xrootd_parts || is_for_tests; then
        has_header xrootd/XrdCl/XrdClFile.hh || missing+=(libxrootd-client-dev)
        has_header xrootd/XrdOfs/XrdOfsFSctl_PI.hh || missing+=(libxrootd-server-dev)
        has_header xrootd/private/XrdHttp/XrdHttpExtHandler.hh || missing+=(libxrootd-private-dev)
        has_header nlohmann/json.hpp || missing+=(nlohmann-json3-dev)
        has_header openssl/ssl.h || missing+=(libssl-dev)
    fi
    # The tests of logins run a provider in Node.js.
    if [ "$level" = console ] || is_for_tests; then
        has node || missing+=(nodejs)
        has npm || missing+=(npm)
    fi
    if [ "$level" = celery ]; then
        has_postgresql || missing+=(postgresql)
        has redis-server || missing+=(redis-server)
    fi
}

# find_peers: set `peers` to the missing packages of the copy tools that dray is compared with.
find_peers() {
    peers=()
    local each words
    for each in "rsync rsync" "globus-gridftp-server globus-gridftp-server-progs" \
        "globus-url-copy globus-gass-copy-progs" "xrootd xrootd-server xrootd-server-plugins" \
        "xrdcp xrootd-client xrootd-client-plugins" "rclone rclone" "aria2c aria2" \
        "nginx nginx-light" "sshd openssh-server" "ssh openssh-client" "iperf3 iperf3" \
        "openssl openssl" "setpriv util-linux" "strace strace"; do
        read -ra words <<<"$each"
        # The PATH of some users does not contain Debian's folder of server programs.
        PATH="$PATH:/usr/sbin:/sbin" has "${words[0]}" || peers+=("${words[@]:1}")
    done
    [ -e "$linux_source" ] || peers+=(linux-source-6.1)
}

# --- getting it ---------------------------------------------------------------------------------

explain_missing() {
    say "this host lacks, by Debian's names: ${missing[*]}"
    say "install them as root:  apt-get install --no-install-recommends ${missing[*]}"
    if [ -z "$rust" ]; then
        say "any other Rust >= $(rust_floor) with cargo on PATH will do as well"
    fi
    exit 1
}

# start_nothing: prevent packages from starting their servers, which would listen on all addresses
# of this host. Tests start their own servers on the loopback.
start_nothing() {
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
}

install_missing() {
    if [ "${DRAY_NO_INSTALL:-}" = 1 ] || [ "$(id -u)" != 0 ] || ! has apt-get; then
        explain_missing
    fi
    say "installing ${missing[*]}"
    start_nothing
    local output
    # --no-remove: rustc-web and cargo-web replace Debian's older rustc and cargo, but only the
    # owner of the host may decide to remove a package.
    if ! output=$(export DEBIAN_FRONTEND=noninteractive
        apt-get update -q 2>&1 &&
            apt-get install -q -y --no-remove --no-install-recommends "${missing[@]}" 2>&1); then
        printf '%s\n' "$output" | tail -n 15 >&2
        explain_missing
    fi
}

# install_peers: a copy tool that cannot be installed is no error. The benchmark reports it.
install_peers() {
    local each
    find_peers
    if [ "${#peers[@]}" -gt 0 ]; then
        if [ "${DRAY_NO_INSTALL:-}" = 1 ] || [ "$(id -u)" != 0 ] || ! has apt-get; then
            say "not on this host: ${peers[*]}"
            say "install them as root:  apt-get install --no-install-recommends ${peers[*]}"
        else
            say "installing ${peers[*]}"
            start_nothing
            apt-get update -q >/dev/null 2>&1 || say "apt-get update fails; trying with what is known"
            # Install one package at a time, because a release of Debian may lack one of them.
            for each in "${peers[@]}"; do
                DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-remove \
                    --no-install-recommends "$each" >/dev/null 2>&1 ||
                    say "apt-get cannot install $each"
            done
        fi
    fi
    if [ ! -x "$root/.tools/go/bin/rclone" ]; then
        if has go && [ "${DRAY_NO_INSTALL:-}" != 1 ]; then
            say "building $rclone, which takes minutes"
            GOBIN="$root/.tools/go/bin" go install "$rclone" >/dev/null 2>&1 ||
                say "Go cannot fetch or build $rclone"
        else
            say "no Go on this host: no newer rclone"
        fi
    fi
}

find_missing
if [ "${#missing[@]}" -gt 0 ]; then
    install_missing
    find_missing
    [ "${#missing[@]}" -eq 0 ] || explain_missing
fi
if is_for_tests; then
    if ! has_rustfmt "$rust" || ! has_clippy "$rust"; then
        say "the Rust in $rust lacks rustfmt or clippy"
        die "with rustup: rustup component add rustfmt clippy"
    fi
fi

# --- .venv --------------------------------------------------------------------------------------

# Take a lock, because two `make` in one tree would fill the same environment.
mkdir -p "$root/.tools"
exec 9>"$root/.tools/bootstrap.lock"
! has flock || flock 9

install_python() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@"
}

# install_many PYTHON WORD...: install hundreds of packages with uv, which takes seconds instead of
# the minutes of pip. If uv fails, use pip: uv reads no pip.conf, so it fails on a host that reaches
# its index only with the settings of pip. Unlike pip, uv compiles no bytecode by default. If
# PYTHONDONTWRITEBYTECODE is set and there is no bytecode, each process compiles all modules that it
# imports. Four processes of Airflow then need several minutes to start.
install_many() {
    local python=$1
    shift
    "$venv/bin/uv" pip install --quiet --compile-bytecode --python "$python" "$@" ||
        "$python" -m pip install --quiet --disable-pip-version-check --no-input "$@"
}

# Scripts in an environment contain the paths of the environment and of its Python. So a moved tree
# or another Python needs a new environment.
place="$root $("$python" -c 'import sys; print(sys.base_prefix, sys.version.split()[0])')"
stamp="$place $(cksum <"$requirements")"
if [ ! -x "$venv/bin/python" ] || [ "$(cat "$venv/dray-stamp" 2>/dev/null)" != "$stamp" ]; then
    say "filling .venv from tools/requirements-dev.txt"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    install_python --requirement "$requirements"
    printf '%s\n' "$stamp" >"$venv/dray-stamp"
fi

# Airflow has its own stamp, so that building alone neither waits for Airflow nor removes it.
if needs_airflow; then
    stamp=$(cksum <"$requirements_airflow")
    if [ "$(cat "$venv/dray-airflow-stamp" 2>/dev/null)" != "$stamp" ]; then
        say "adding Airflow to .venv from tools/requirements-airflow.txt"
        both=(--requirement "$requirements" --requirement "$requirements_airflow")
        uv=$(grep '^uv==' "$requirements_airflow" || true)
        [ -z "$uv" ] || install_python "$uv"
        install_many "$venv/bin/python" "${both[@]}"
        printf '%s\n' "$stamp" >"$venv/dray-airflow-stamp"
    fi
fi

# Fills the environment NAME in the folder with the packages of a list, if the list has changed.
fill() {
    local name=$1 folder=$2 list=$3 wanted
    wanted="$place $(cksum <"$list")"
    [ ! -x "$folder/bin/python" ] || [ "$(cat "$folder/dray-stamp" 2>/dev/null)" != "$wanted" ] || return 0
    say "filling .tools/$name from tools/requirements-$name.txt"
    rm -rf "$folder"
    "$python" -m venv "$folder"
    install_many "$folder/bin/python" --requirement "$list"
    printf '%s\n' "$wanted" >"$folder/dray-stamp"
}

if is_for_tests; then
    fill rucio "$rucio" "$requirements_rucio"
    stamp="$root $(cksum <"$requirements_fts")"
    if [ ! -x "$fts/bin/python" ] || [ "$(cat "$fts/dray-stamp" 2>/dev/null)" != "$stamp" ]; then
        say "filling .tools/fts from tools/requirements-fts.txt"
        rm -rf "$fts"
        # If this fails, the tests with the client are skipped.
        if "$system/usr/bin/python3" -m venv "$fts" --system-site-packages &&
            install_many "$fts/bin/python" --no-deps --requirement "$requirements_fts"; then
            printf '%s\n' "$stamp" >"$fts/dray-stamp"
        else
            say "cannot install the stock client of FTS"
        fi
    fi
    fill sbom "$sbom" "$requirements_sbom"
fi

if is_for_tests || [ "$level" = manual ]; then
    fill manual "$manual" "$requirements_manual"
fi

[ "$level" != bench ] || install_peers

environment=$(
    printf 'export PATH=%q:%q:"$PATH"\n' "$venv/bin" "$rust"
    printf 'export VIRTUAL_ENV=%q\nunset PYTHONHOME PYTHONPATH\n' "$venv"
    # With this variable, each process of pytest would rewrite and compile all test modules.
    printf 'unset PYTHONDONTWRITEBYTECODE\n'
)
if [ "$(cat "$venv/dray-env.sh" 2>/dev/null)" != "$environment" ]; then
    printf '%s\n' "$environment" >"$venv/dray-env.sh"
fi
