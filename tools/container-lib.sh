# Functions of tools/container.sh and tools/testbed.sh, which source this file: the choice of the
# container engine, podman's own folder, the base image, and the removal of everything. The caller
# sets `file` (the compose file), `image`, `project` and `root`.
# shellcheck shell=bash

published=docker.io/library/debian:bookworm-slim
store=$root/.tools/containers
compose=(podman-compose==1.6.0 python-dotenv==1.2.4 PyYAML==6.0.3)
export COMPOSE_PROJECT_NAME=$project

say() { printf '\n== %s\n' "$*"; }
note() { printf 'container: %s\n' "$*" >&2; }
die() {
    note "$@"
    exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# --- which engine -------------------------------------------------------------------------------

docker_answers() {
    has docker && docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1
}

engine=${ENGINE:-}
if [ -z "$engine" ]; then
    engine=podman
    ! docker_answers || engine=docker
fi

# install_missing PACKAGE...
install_missing() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    if [ "${DRAY_NO_INSTALL:-}" = 1 ] || [ "$(id -u)" != 0 ] || ! has apt-get; then
        die "install as root:  apt-get install --no-install-recommends ${missing[*]}"
    fi
    note "installing ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-remove --no-install-recommends \
        "${missing[@]}" >/dev/null
}

if [ "$engine" = podman ]; then
    # netavark makes the networks with iptables, but its package does not require iptables.
    # aardvark-dns resolves the names of containers.
    if has dpkg-query; then
        install_missing podman buildah crun netavark aardvark-dns iptables python3-venv
    fi
    has podman || die "neither docker nor podman is here"
    [ "$(id -u)" = 0 ] || die "podman is used as root here: its networks give names to containers"
    # Run in a separate mount namespace, so that podman's mounts disappear when this script ends. If
    # both versions of control groups are mounted, crun fails. So unmount the second version here.
    if [ "${DRAY_CONTAINER_SPACE:-}" != 1 ]; then
        DRAY_CONTAINER_SPACE=1 exec unshare --mount --propagation private -- "$0" "$@"
    fi
    if mountpoint -q /sys/fs/cgroup/unified; then
        umount /sys/fs/cgroup/unified
    fi
fi

# --- podman's own folder ------------------------------------------------------------------------

if [ "$engine" = podman ]; then
    mkdir -p "$store"
    chmod 700 "$store"
    cat >"$store/storage.conf" <<CONF
[storage]
driver = "overlay"
graphroot = "$store/images"
runroot = "$store/run"
CONF
    # Use limits below those of any host. By default podman requests a limit of a million, which
    # fails on a host where the script may not raise limits.
    cat >"$store/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "crun"
tmp_dir = "$store/run/libpod"
[network]
network_backend = "netavark"
network_config_dir = "$store/networks"
CONF
    export CONTAINERS_STORAGE_CONF=$store/storage.conf CONTAINERS_CONF=$store/containers.conf
    # Podman stores images without a registry under this name.
    image=localhost/$image
    stand_in=localhost/dray/debian-stand-in:bookworm
    if [ ! -x "$store/compose/bin/podman-compose" ]; then
        python3 -m venv "$store/compose"
        "$store/compose/bin/python" -m pip install --quiet --disable-pip-version-check \
            "${compose[@]}"
    fi
    compose() {
        "$store/compose/bin/podman-compose" --in-pod false -f "$file" "$@"
    }
else
    stand_in=dray/debian-stand-in:bookworm
    compose() { docker compose -f "$file" "$@"; }
fi

# --- taking it away -----------------------------------------------------------------------------

images=("$image")

tidy() {
    local code=$?
    set +e
    say "Cleaning up"
    compose down --volumes --timeout 5 >/dev/null 2>&1
    if [ "${KEEP:-}" = 1 ]; then
        echo "kept: images ${images[*]} and, if it was made, $stand_in"
    elif [ "$engine" = docker ]; then
        docker image rm "${images[@]}" "$stand_in" >/dev/null 2>&1
        echo "containers, networks, volumes and images are gone (docker keeps its build cache)"
    else
        podman rm --all --force >/dev/null 2>&1
        podman volume rm --all --force >/dev/null 2>&1
        podman network prune --force >/dev/null 2>&1
        podman image rm --all --force >/dev/null 2>&1
        awk -v below="$store/" 'index($2, below) == 1 {print $2}' /proc/mounts | sort -r |
            while read -r place; do umount "$place"; done
        rm -rf "$store"
        echo "containers, networks, volumes and images are gone"
    fi
    [ -z "${work:-}" ] || rm -rf "$work"
    exit "$code"
}
trap tidy EXIT
trap 'exit 130' INT TERM

# --- the base image -----------------------------------------------------------------------------

# get_base: set `base` to an image of Debian.
get_base() {
    say "Engine: $("$engine" --version)"
    base=$published
    if timeout 120 "$engine" pull --quiet "$published" >/dev/null 2>&1; then
        echo "base image: $published, as published"
    else
        base=$stand_in
        echo "base image: no registry gives $published; a STAND-IN made by debootstrap takes its place"
        if ! "$engine" image inspect "$stand_in" >/dev/null 2>&1; then
            install_missing debootstrap
            work=$(mktemp -d "${TMPDIR:-/tmp}/dray-base.XXXXXX")
            mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
            debootstrap --variant=minbase bookworm "$work/root" "$mirror" >"$work/log" 2>&1 ||
                die "debootstrap failed: $(tail -n 3 "$work/log")"
            # Add the sources of the published image. Debian's newer Rust is in the security updates.
            printf 'deb %s %s main\n' "$mirror" bookworm "$mirror" bookworm-updates \
                "${mirror%/debian}/debian-security" bookworm-security >"$work/root/etc/apt/sources.list"
            tar -C "$work/root" -c . | "$engine" import - "$stand_in" >/dev/null 2>&1
            rm -rf "$work"
        fi
    fi
}

# build FILE TAG OPTION...: build an image from the source tree.
build() {
    local options=(--file "$root/docker/$1" --tag "$2" --build-arg "BASE=$base") begun=$SECONDS
    local log=$root/.tools/container-build.log authorities=/etc/ssl/certs/ca-certificates.crt
    [ ! -s "$authorities" ] || options+=(--secret "id=authorities,src=$authorities")
    # Only Docker's format of images supports health checks. The isolation chroot needs the fewest
    # rights.
    if [ "$engine" = podman ]; then
        options+=(--format docker --isolation chroot --pull=never)
        [ ! -e "$root/docker/$1.dockerignore" ] ||
            options+=(--ignorefile "$root/docker/$1.dockerignore")
    fi
    "$engine" build "${options[@]}" "${@:3}" "$root" >"$log" 2>&1 ||
        die "the build of $2 failed: $(tail -n 20 "$log")"
    echo "$2: built in $((SECONDS - begun)) s: $(mib "$2"), of which $(mib "$base") are the base"
}
mib() { "$engine" image inspect --format '{{.Size}}' "$1" | awk '{printf "%.0f MiB", $1 / 1048576}'; }
