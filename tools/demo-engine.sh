#!/usr/bin/env bash
# Demonstrates the engine without endpoints. A real tree moves between two processes over TLS. The
# receiving process is killed with kill -9 in the middle. Then the same command sends only data that
# was not safe yet.
#
#   make demo-engine            with a generated tree of about 400 MiB
#   make demo-engine DATA=DIR     with your own tree
#
# All files are in one temporary folder, which is removed at the end. All connections are on
# loopback.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dray=${CARGO_TARGET_DIR:-$root/engine/target}/release/dray
[ -x "$dray" ] || { echo "demo: build it first: make build" >&2; exit 1; }

work=$(mktemp -d "${TMPDIR:-/tmp}/dray-demo.XXXXXX")
server=
client=
tidy() {
    for process in $client $server; do
        kill -9 "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap tidy EXIT

say() { printf '\n== %s\n' "$*"; }

data=${DATA:-}
if [ -z "$data" ]; then
    say "A tree to move: 3 000 small files, folders, a link and two large files"
    data=$work/experiment
    python3 - "$data" <<'PY'
import os, pathlib, sys
top = pathlib.Path(sys.argv[1])
for run in range(30):
    folder = top / f"run{run:03}"
    folder.mkdir(parents=True)
    for event in range(100):
        (folder / f"event{event:03}.dat").write_bytes(os.urandom(200 + 37 * event))
(top / "latest").symlink_to("run029")
for name in ("detector.raw", "calibration.raw"):
    with open(top / name, "wb") as file:
        for _ in range(192):
            file.write(os.urandom(1 << 20))
PY
fi
[ -d "$data" ] || { echo "demo: DATA=$data is not a folder" >&2; exit 2; }
size=$(du -sb "$data" | cut -f1)
echo "$(find "$data" -type f | wc -l) files, $((size >> 20)) MiB in $data"

mkdir -p "$work/arrived"
(umask 077; head -c 24 /dev/urandom | base64 >"$work/token")

start_server() {
    "$dray" serve --listen 127.0.0.1:0 --root "$work/arrived" --identity "$work/identity" \
        --token-file "$work/token" --json >"$work/server.json" 2>>"$work/server.log" &
    server=$!
    for _ in $(seq 100); do
        [ -s "$work/server.json" ] && break
        sleep 0.05
    done
    read -r address fingerprint < <(python3 - "$work/server.json" <<'PY'
import json, sys
ready = json.loads(open(sys.argv[1]).readline())
print(ready["addresses"][0], ready["fingerprint"])
PY
    )
}

copy() { # copy NAME [OPTIONS]: the very same request each time
    local name=$1
    shift
    DRAY_PEER_KEY=$fingerprint "$dray" cp -r "$data" "dray://$address/" \
        --token-file "$work/token" --retries 0 --json "$@" \
        >"$work/$name.json" 2>"$work/$name.log"
}

say "The receiving end: dray serve (process 1), the sending end: dray cp (process 2)"
start_server
echo "listening on $address, key $fingerprint"

say "The copy starts (held to a quarter of the tree per second, so that there is a middle)"
copy first --rate "$((size / 4 + 1))" --progress lines &
client=$!
sleep 2
say "kill -9 of the receiving end, in the middle"
kill -9 "$server"
wait "$server" 2>/dev/null || true
code=0
wait "$client" || code=$?
client=
echo "dray cp ended with exit code $code (5: interrupted but resumable):"
tail -n 1 "$work/first.log"
partial=$(find "$work/arrived" -name '.dray-*.part' | wc -l)
echo "$(find "$work/arrived" -type f ! -name '.dray-*' ! -path '*/.dray-log/*' | wc -l)" \
    "files stand complete, $partial partial ones wait hidden beside their names"

say "The receiving end again, and the same command again"
start_server
copy second --progress lines
wait_code=$?

say "Report"
python3 - "$work/first.json" "$work/second.json" "$size" <<'PY'
import json, sys
def load(path):
    lines = [line for line in open(path) if line.strip()]
    return json.loads(lines[-1]) if lines else {}
first, second = load(sys.argv[1]), load(sys.argv[2])
mib = 1 << 20
print(f"first run   sent {first.get('bytes_sent', 0) / mib:8.1f} MiB, {first.get('state')}")
took = second["seconds"]
print(f"second run  sent {second['bytes_sent'] / mib:8.1f} MiB, {second['state']} in {took:.2f} s")
by_log, in_place = second["objects_resumed"], second["files_adopted"]
print(f"not sent again: {by_log} objects by the log, {in_place} files already in place")
print(f"files failed: {len(second['files_failed'])}")
PY
if diff -r --no-dereference "$data" "$work/arrived/$(basename "$data")" >/dev/null; then
    echo "diff -r: the trees are identical"
else
    echo "diff -r: THE TREES DIFFER" >&2
    exit 1
fi
kill -TERM "$server"
wait "$server" 2>/dev/null || true
server=
exit "$wait_code"
