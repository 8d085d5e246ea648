#!/bin/bash
# Runs one service of the test bed: testbed-entry.sh SERVICE [WORD...]. All keys and passwords are in
# /facts, which the service `init` has filled.
set -euo pipefail

service=$1
shift
rucio=/bed/.tools/rucio/bin
if [ "$service" != init ]; then
    set -a
    # shellcheck disable=SC1091
    . /facts/env
    set +a
fi

as_rucio() { # as_rucio CONFIG WORD...: with the Python of Rucio
    export RUCIO_CONFIG=/facts/$1 PATH=$rucio:/usr/local/bin:/usr/bin:/bin
    export PYTHONPATH=/bed/engine/python:/bed/plugins/rucio:/bed
    shift
    exec "$@"
}

postgresql() {
    local data=/srv/postgresql/data programs
    programs=$(echo /usr/lib/postgresql/*/bin)
    if [ ! -d "$data" ]; then
        "$programs/initdb" -D "$data" -U postgres -A scram-sha-256 --pwfile /facts/postgresql \
            --no-sync >/dev/null
        echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
        "$programs/pg_ctl" -D "$data" -w -o "-c listen_addresses= -k /tmp" start >/dev/null
        for name in airflow rucio; do
            PGPASSWORD=$(cat /facts/postgresql) "$programs/createdb" -h /tmp -U postgres "$name"
        done
        "$programs/pg_ctl" -D "$data" -w stop >/dev/null
    fi
    exec "$programs/postgres" -D "$data" -k /tmp -c listen_addresses='*' -c max_connections=200
}

# A killed endpoint starts again after two seconds, as under a service manager.
endpoint() {
    local child=0
    trap 'kill -TERM "$child"; wait "$child"; exit 0' TERM INT
    while :; do
        dray endpoint run --config "/sites/$1/etc/drayd.toml" &
        child=$!
        wait "$child" || true
        sleep 2 &
        wait $!
    done
}

# Some programs write to the working folder.
cd /home/dray
case $service in
init) exec python -m integration.managers.testbed_init "$@" ;;
postgresql) postgresql ;;
redis) exec redis-server /facts/redis.conf ;;
endpoint) endpoint "$@" ;;
xrootd) exec xrootd -c "/facts/xrootd-$1.cf" -n "$1" ;;
fts) exec python -m dray_fts --config /facts/fts.toml ;;
rucio-once) as_rucio rucio.cfg python -m integration.managers.testbed_rucio "$@" ;;
rucio) as_rucio rucio.cfg gunicorn -b 0.0.0.0:8080 -w 1 --threads 4 rucio.web.rest.main:application ;;
rucio-daemon) as_rucio rucio.cfg "$@" ;;
rucio-poller) as_rucio "rucio-$1.cfg" python -m integration.rucio.poll "$1" ;;
airflow) exec airflow "$@" ;;
story) exec python -m integration.managers.testbed "$@" ;;
sleep) exec sleep infinity ;;
*)
    echo "testbed-entry.sh: no service $service; docker/testbed.yaml names the services" >&2
    exit 2
    ;;
esac
