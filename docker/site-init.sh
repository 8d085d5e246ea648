#!/bin/sh
# Makes one site of the test bed, once: site-init.sh NAME. Runs as root in a container of its own,
# with the volumes of the site and the one of the facts, and ends. The key goes where everybody may
# read it; the tokens are for the client alone.
set -eu

name=$1
as_dray() { runuser -u dray -- "$@"; }

as_dray dray endpoint init /etc/dray --name "$name" --listen 0.0.0.0:4735 \
    --state /var/lib/dray --root data=/srv/data >/tmp/key
install -d -m 0755 /facts
sed -n 's/^key //p' /tmp/key >"/facts/$name.key"
for who in alice bob; do
    case $who in
    alice) scope='storage.read:/data storage.modify:/data' ;;
    bob) scope='storage.read:/data/public' ;;
    esac
    as_dray dray token mint --sub "$who" --scope "$scope" --lifetime 1d >/tmp/token
    install -o dray -g dray -m 0600 /tmp/token "/facts/$name.$who.token"
done
