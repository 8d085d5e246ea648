#!/bin/bash
# Runs in a clean system: starts two XRootD servers, of which the second uses the recipe of the
# package dray-xrootd, and copies a file from one to the other. Prints the destination's log.
set -euo pipefail
export XRD_CONNECTIONRETRY=1 XRD_CONNECTIONWINDOW=5
here=/srv/copy
mkdir -p $here/{source,dest}/data $here/admin
head -c 100000000 /dev/urandom >$here/source/data/f
ln -sf /usr/share/dray/xrootd-tpc.cfg /etc/xrootd/config.d/90-dray.cfg
for side in source dest; do
    port=1094
    [ $side = source ] || port=1095
    cat >$here/$side.cfg <<CONFIG
all.export /data
oss.localroot $here/$side
all.adminpath $here/admin
all.pidpath $here/admin
xrd.port $port
CONFIG
done
echo 'ofs.tpc pgm /usr/bin/xrdcp --server' >>$here/source.cfg
echo 'continue /etc/xrootd/config.d/' >>$here/dest.cfg
chown -R xrootd:xrootd $here
cd $here
for side in source dest; do
    setpriv --reuid=xrootd --regid=xrootd --clear-groups \
        xrootd -n $side -c $here/$side.cfg -l $here/$side.log >/dev/null 2>&1 &
done
for _ in $(seq 100); do
    xrdfs 127.0.0.1:1094 ls / >/dev/null 2>&1 && xrdfs 127.0.0.1:1095 ls / >/dev/null 2>&1 && break
    sleep 0.2
done
xrdcp --tpc only root://127.0.0.1:1094//data/f root://127.0.0.1:1095//data/f ||
    { cat $here/dest/dest.log; exit 1; }
cmp $here/source/data/f $here/dest/data/f
cat $here/dest/dest.log
