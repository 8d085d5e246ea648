#!/usr/bin/env bash
# Builds docker/drayd.Dockerfile and tests docker/compose.yaml: two sites, a client, copies between
# the sites, kills. `make test-docker` runs this script. It is not part of `make test`.
#
#   tools/container.sh          builds and tests, and removes everything afterwards
#   KEEP=1 tools/container.sh   leaves the images for the next run
#
# The script uses docker if its daemon answers. Otherwise it uses podman, whose images, containers
# and networks are then only in .tools/containers. As root it installs a missing podman with
# apt-get. Otherwise it prints the command that installs podman. If no registry answers, debootstrap
# makes the base image from Debian's packages, and the script reports that this is not Debian's
# published image.
#
# Environment variables: ENGINE (docker or podman), KEEP=1, DRAY_NO_INSTALL=1 (never call
# apt-get), DEBIAN_MIRROR (for debootstrap).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
project=dray-test
file=$root/docker/compose.yaml
image=dray/drayd:test
# shellcheck source=tools/container-lib.sh
. "$root/tools/container-lib.sh"
export DRAYD_IMAGE=$image

get_base
say "The image (link-time optimisation off, to save time)"
build drayd.Dockerfile "$image" --build-arg CARGO_PROFILE_RELEASE_LTO=off
echo "user $("$engine" image inspect --format '{{.Config.User}}' "$image")"

# --- the test -----------------------------------------------------------------------------------

in_client() { compose exec -T client /test.sh "$@"; }

# The log contains the messages of podman-compose, for the analysis of a failure.
log=$root/.tools/container-compose.log
say "Two sites and a client"
compose up -d --no-build >"$log" 2>&1 || die "they do not start: $(tail -n 20 "$log")"
in_client

say "The image's own check of health"
for site in site-a site-b; do
    if [ "$engine" = podman ]; then
        # Start the check here, because podman leaves this to systemd.
        podman healthcheck run "${project}_${site}_1" || die "$site is not healthy"
    else
        for _ in $(seq 90); do
            health=$(docker inspect --format '{{.State.Health.Status}}' "$project-$site-1")
            [ "$health" != healthy ] || break
            sleep 1
        done
        [ "$health" = healthy ] || die "$site is $health"
    fi
    echo "$site: healthy"
done

for victim in site-b site-a; do
    say "kill -9 of $victim in the middle of site-a -> site-b ($([ $victim = site-b ] &&
        echo "active: it drives" || echo "passive: it serves")), then it starts again"
    in_client start "killed-$victim" site-a site-b
    in_client partly site-b
    compose kill -s KILL "$victim" >>"$log" 2>&1
    sleep 2
    compose start "$victim" >>"$log" 2>&1
    in_client ready
    in_client finish "killed-$victim" site-a site-b
done

say "SIGTERM: both leave by themselves"
begun=$SECONDS
compose stop --timeout 30 site-a site-b >>"$log" 2>&1
echo "stopped in $((SECONDS - begun)) s"

say "PASSED on base ${base}"
