#!/bin/bash
# The test bed tried out, from its client:
#
#   test.sh            all that needs no restart: copies between the sites by name, looked at from
#                      outside with sha256sum; what must be refused
#   test.sh start ID SITE_FROM SITE_TO    a slow copy that goes on without this program
#   test.sh partly SITE                   waits until some of it is on SITE's disk
#   test.sh finish ID SITE_FROM SITE_TO   waits for its end and compares
#   test.sh ready                         waits until both sites answer
#
# tools/container.sh kills and starts a site between `start` and `finish`.
set -euo pipefail

sites=(site-a site-b)
keys=
tokens=()
for site in "${sites[@]}"; do
    keys=$keys${keys:+,}$site=$(cat "/facts/$site.key")
    tokens+=(--token-file "$site=/facts/$site.alice.token")
done
export DRAY_PEER_KEY=$keys

say() { printf '== %s\n' "$*"; }
fail() {
    printf 'test: %s\n' "$*" >&2
    exit 1
}

# Waits until a site answers: test beds start in any order.
ready() {
    local site
    for site in "${sites[@]}"; do
        for _ in $(seq 120); do
            if dray endpoint status "$site" "${tokens[@]}" >/tmp/status 2>/tmp/complaint; then
                break
            fi
            sleep 0.5
        done
        grep -q ': ok$' /tmp/status || fail "$site does not answer: $(cat /tmp/complaint)"
    done
}

# sums FOLDER...: one sum of names and contents of all that is there, made without dray.
sums() {
    (cd "$1" && find . -type f ! -path '*/.dray-*' -print0 | sort -z | xargs -0 sha256sum) |
        sha256sum | cut -c 1-16
}

same() { # same WHAT A B: files or folders
    local a b
    if [ -d "$2" ]; then
        a=$(sums "$2")
        b=$(sums "$3")
    else
        a=$(sha256sum <"$2" | cut -c 1-16)
        b=$(sha256sum <"$3" | cut -c 1-16)
    fi
    [ "$a" = "$b" ] || fail "$1: sha256 $a is not $b"
    printf '%s: sha256 %s... at both ends\n' "$1" "$a"
}

# refused WORD COMMAND...: ends with 3 and says WORD.
refused() {
    local word=$1 code=0
    shift
    "$@" >/tmp/said 2>&1 || code=$?
    if [ "$code" != 3 ] || ! grep -q -- "$word" /tmp/said; then
        fail "exit code $code of $*: $(cat /tmp/said)"
    fi
    tail -n 1 /tmp/said
}

everything() {
    say 'Both sites answer, by name'
    ready
    dray endpoint status site-a "${tokens[@]}"

    say 'A file and a folder, made here, pushed to site-a'
    local work
    work=$(mktemp -d)
    head -c 100M /dev/urandom >"$work/x"
    mkdir -p "$work/run42/raw"
    local n
    for n in $(seq -w 500); do head -c "$((10#$n * 40))" /dev/urandom >"$work/run42/event$n"; done
    head -c 20M /dev/urandom >"$work/run42/raw/detector"
    dray cp "$work/x" dray://site-a/data/x "${tokens[@]}" --progress lines
    dray cp -r "$work/run42" dray://site-a/data/ "${tokens[@]}" --progress lines
    same 'x at site-a' "$work/x" /sites/site-a/x

    say 'From site-a to site-b: one file'
    dray cp dray://site-a/data/x dray://site-b/data/x "${tokens[@]}"
    same x "$work/x" /sites/site-b/x

    say 'From site-a to site-b: a folder of 501 files'
    dray cp -r dray://site-a/data/run42 dray://site-b/data/ "${tokens[@]}"
    same run42 "$work/run42" /sites/site-b/run42

    say 'And back under another name: the other endpoint is the active one'
    dray cp -r dray://site-b/data/run42/ dray://site-a/data/returned "${tokens[@]}"
    same returned "$work/run42" /sites/site-a/returned

    say 'The same copy again sends nothing'
    dray cp dray://site-a/data/x dray://site-b/data/x "${tokens[@]}" --json >/tmp/again
    grep -q '"sent":0' /tmp/again || fail "it was sent again: $(cat /tmp/again)"
    grep -o '"bytes":{[^}]*}' /tmp/again

    say 'What must be refused: bob may read /data/public only, and has no key of site-b'
    refused storage.read dray ls dray://site-a/data --token-file /facts/site-a.bob.token
    refused 'not authorized' dray ls dray://site-b/data --token-file /facts/site-a.alice.token
    DRAY_PEER_KEY=$(cat /facts/site-b.key) refused key dray endpoint status site-a "${tokens[@]}"

    say 'A pull to here'
    dray cp dray://site-b/data/x "$work/y" "${tokens[@]}" --progress lines
    same y "$work/x" "$work/y"
    rm -r "$work"
}

case ${1:-everything} in
everything) everything ;;
ready) ready ;;
start)
    dray cp "dray://$3/data/x" "dray://$4/data/$2" "${tokens[@]}" \
        --transfer-id "$2" --rate 20MiB --detach
    ;;
partly)
    for _ in $(seq 100); do
        size=$(find "/sites/$2" -name '.dray-*.part' -exec du -m {} + | awk '{s += $1} END {print s + 0}')
        if [ "$size" -ge 20 ]; then
            echo "$size MiB lie in a partial file at $2"
            exit
        fi
        sleep 0.2
    done
    fail "nothing comes at $2"
    ;;
finish)
    dray show "$2" --endpoint "$4" --wait "${tokens[@]}" --json >/tmp/shown || fail "$(cat /tmp/shown)"
    grep -o '"state":"[a-z]*"\|"bytes":{[^}]*}\|"tries":[0-9]*' /tmp/shown
    # What was on the way goes twice, what was safe does not.
    sent=$(sed -n 's/.*"sent":\([0-9]*\)}.*/\1/p' /tmp/shown)
    [ "$((sent >> 20))" -le 130 ] || fail "100 MiB took $((sent >> 20)) MiB to send"
    same "$2" "/sites/$3/x" "/sites/$4/$2"
    ;;
*) fail "no step $1" ;;
esac
