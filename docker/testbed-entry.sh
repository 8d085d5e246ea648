#!/bin/bash
# Runs one service of the test bed (testbed.yaml): testbed-entry.sh SERVICE [WORD...]. The service
# `init` has written the keys, passwords and configuration files into the volumes below /facts. Each
# service mounts only the volumes that it needs.
set -euo pipefail

service=$1
shift
rucio=/bed/.tools/rucio/bin
# Environment variables of Airflow's components, and of the XRootD server of the Ceph pool.
set -a
for file in /facts/*/env; do
    # shellcheck disable=SC1090
    [ ! -e "$file" ] || . "$file"
done
set +a

as_rucio() { # as_rucio FOLDER WORD...: with the Python of Rucio, and its configuration in /facts
    export RUCIO_CONFIG=/facts/$1/rucio.cfg PATH=$rucio:/usr/local/bin:/usr/bin:/bin
    export PYTHONPATH=/bed/engine/python:/bed/plugins/rucio:/bed
    shift
    exec "$@"
}

postgresql() {
    local data=/srv/postgresql/data programs
    programs=$(echo /usr/lib/postgresql/*/bin)
    if [ ! -d "$data" ]; then
        # If this is interrupted, the next start begins again: the folder gets its name last.
        local new=$data.new
        rm -rf "$new"
        # Rucio's driver returns bytes instead of text if the encoding is not UTF-8.
        "$programs/initdb" -D "$new" -U postgres --encoding UTF8 --locale C.UTF-8 \
            -A scram-sha-256 --pwfile /facts/postgresql/password --no-sync >/dev/null
        # A user has access only to the database of the same name.
        echo 'host sameuser all all scram-sha-256' >>"$new/pg_hba.conf"
        "$programs/pg_ctl" -D "$new" -w -o "-c listen_addresses= -k /tmp" start >/dev/null
        PGPASSWORD=$(cat /facts/postgresql/password) psql -q -h /tmp -U postgres \
            -v ON_ERROR_STOP=1 -f /facts/postgresql/databases.sql
        "$programs/pg_ctl" -D "$new" -w stop >/dev/null
        mv "$new" "$data"
    fi
    exec "$programs/postgres" -D "$data" -k /tmp -c listen_addresses='*' -c max_connections=200
}

# A killed endpoint starts again after two seconds, as under a service manager.
endpoint() {
    local child=0
    trap 'kill -TERM "$child"; wait "$child"; exit 0' TERM INT
    while :; do
        dray endpoint run --config "/facts/endpoint-$1/etc/drayd.toml" &
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
ceph) exec python -m integration.managers.testbed_ceph ;;
redis) exec redis-server /facts/redis/redis.conf ;;
endpoint) endpoint "$@" ;;
# With IPv6, an XRootD server does not find the names of IPv4 addresses in /etc/hosts.
xrootd) exec xrootd -I v4 -c "/facts/xrootd-$1/xrootd.cf" -n "$1" ;;
proxy) exec python -m integration.managers.testbed_proxy "$1" ;;
fts) exec python -m dray_fts --config /facts/fts/fts.toml ;;
rucio-tables) as_rucio rucio python -m integration.managers.testbed_rucio database ;;
rucio-rses) as_rucio rucio-client python -m integration.managers.testbed_rucio rses ;;
rucio) as_rucio rucio gunicorn -b 0.0.0.0:8080 -w 1 --threads 4 rucio.web.rest.main:application ;;
rucio-daemon) as_rucio rucio "$@" ;;
rucio-poller) as_rucio "rucio-$1" python -m integration.rucio.poll "$1" ;;
airflow) exec airflow "$@" ;;
story) exec python -m integration.managers.testbed "$@" ;;
sleep) exec sleep infinity ;;
*)
    echo "testbed-entry.sh: no service $service; docker/testbed.yaml names the services" >&2
    exit 2
    ;;
esac
