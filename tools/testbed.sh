#!/usr/bin/env bash
# Runs all managers in containers (docker/testbed.yaml): two sites, Airflow with Celery, PostgreSQL
# and Redis, Rucio with its daemons, the FTS service, and the steps of `make e2e-managers`
# (the *story*: integration/managers/story.py).
# `make testbed` runs this script. It is not part of `make test`.
#
#   tools/testbed.sh             builds, runs the story, and removes everything afterwards
#   HOLD=1 tools/testbed.sh      keeps the containers until Ctrl-C, also if a step fails
#   KEEP=1 tools/testbed.sh      leaves the images for the next run
#   PREBUILT=1 tools/testbed.sh  takes the programs of `make build-xrootd`, which must have run on a
#                                Debian 12 host, instead of compiling them again
#
# Container engine, base image and environment variables: see tools/container.sh.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
project=dray-testbed
file=$root/docker/testbed.yaml
image=dray/testbed:test
# shellcheck source=tools/container-lib.sh
. "$root/tools/container-lib.sh"
export TESTBED_IMAGE=$image
programs=${image%/*}/programs:test
images+=("$programs")

# --- the images ---------------------------------------------------------------------------------

get_base
say "The programs"
if [ "${PREBUILT:-}" = 1 ]; then
    built=${CARGO_TARGET_DIR:-$root/engine/target}/release
    [ -x "$built/dray-xrootd-tpc" ] || die "no $built/dray-xrootd-tpc; run: make build-xrootd"
    (cd "$built" && tar -ch --transform 's,^,programs/,' dray dray-xrootd-tpc lib*ray*.so) |
        "$engine" import - "$programs" >/dev/null 2>&1
    echo "$programs: from $built"
else
    build testbed-programs.Dockerfile "$programs"
fi
say "The services"
build testbed.Dockerfile "$image" --build-arg "PROGRAMS=$programs"

# --- the services -------------------------------------------------------------------------------

# The log contains the messages of the compose program, for the analysis of a failure.
log=$root/.tools/testbed-compose.log
: >"$log"

hold() {
    [ "${HOLD:-}" = 1 ] || return 0
    say "The services run until Ctrl-C"
    echo "a shell, from another terminal:"
    if [ "$engine" = podman ]; then
        # The containers are known only in this mount namespace, and in podman's own folder.
        echo "  nsenter --target $$ --mount env CONTAINERS_STORAGE_CONF=$CONTAINERS_STORAGE_CONF" \
            "CONTAINERS_CONF=$CONTAINERS_CONF podman exec -it ${project}_story_1 bash"
    else
        echo "  docker exec -it $project-story-1 bash"
    fi
    sleep infinity
}

fail() { # fail MESSAGE
    note "$@"
    hold
    exit 1
}

# once SERVICE: run a service that prepares others, until it ends.
once() {
    echo "$1"
    compose run --rm -T --no-deps "$1" >>"$log" 2>&1 || fail "$1 failed: $(tail -n 20 "$log")"
}

is_healthy() {
    if [ "$engine" = podman ]; then
        # Run the check here, because podman leaves this to systemd.
        podman healthcheck run "${project}_$1_1" >/dev/null 2>&1
    else
        [ "$(docker inspect --format '{{.State.Health.Status}}' "$project-$1-1")" = healthy ]
    fi
}

# start SERVICE...: start services, and wait until they are healthy.
start() {
    local service
    echo "$*"
    compose up -d --no-build --no-deps "$@" >>"$log" 2>&1 ||
        fail "$* do not start: $(tail -n 20 "$log")"
    for service in "$@"; do
        for attempt in $(seq 120); do
            ! is_healthy "$service" || break
            if [ "$attempt" -eq 120 ]; then
                compose logs --tail 30 "$service" >&2 || true
                fail "$service is not healthy after two minutes"
            fi
            sleep 1
        done
    done
}

say "The services, in the order of their dependencies"
begun=$SECONDS
once init
start postgresql redis ceph endpoint-north proxy-north
start endpoint-south
once airflow-init
start airflow-api airflow-scheduler airflow-dag-processor airflow-triggerer
once rucio-init
start xrootd-north xrootd-south xrootd-archive fts rucio
once rucio-rses
start rucio-submitter rucio-poller-dray rucio-poller-fts3 rucio-finisher rucio-repairer \
    airflow-worker
start story
echo "started in $((SECONDS - begun)) s"

# --- the story ----------------------------------------------------------------------------------

# The story asks for the kill of an endpoint by a line of its progress. The entry script of the
# container then starts the endpoint again.
kill_on_demand() {
    local line
    while IFS= read -r line; do
        echo "$line" >&2
        case $line in
        "testbed: kill "*)
            compose exec -T "${line##* }" pkill -KILL -f '^dray endpoint run' </dev/null >>"$log" 2>&1
            ;;
        esac
    done
}

say "The story"
compose exec -T story /bin/bash /testbed-entry.sh story </dev/null 2> >(kill_on_demand) ||
    fail "the story failed; the messages of the compose program are in $log"
hold
say "PASSED on base ${base}"
