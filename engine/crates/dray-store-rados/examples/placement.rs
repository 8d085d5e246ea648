//! Prints the placement of objects, from the answers of a cluster: `placement POOL OSD_DUMP PG_DUMP
//! [NAMESPACE] < NAMES`.
//!
//! OSD_DUMP and PG_DUMP are files with the answers to `ceph osd dump -f json` and `ceph pg dump
//! pgs_brief -f json`. For each line of the standard input, which is the name of an object, the
//! program prints the placement group and the acting primary OSD.

use dray_store_rados::Placement;
use std::io::{BufRead, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [pool, osd_dump, pg_dump, rest @ ..] = words.as_slice() else {
        return Err("usage: placement POOL OSD_DUMP PG_DUMP [NAMESPACE]".into());
    };
    let namespace = rest.first().map_or("", String::as_str);
    let mut placement = Placement::read(&std::fs::read(osd_dump)?)?;
    placement.add_groups(&std::fs::read(pg_dump)?)?;
    let mut out = std::io::stdout().lock();
    for name in std::io::stdin().lock().lines() {
        let name = name?;
        let group = placement.group_of(pool, namespace, name.as_bytes());
        let osd = placement.primary_of(pool, namespace, name.as_bytes());
        let osd = osd.map_or(-1, |osd| i64::from(osd.0));
        writeln!(out, "{} {osd}", group.unwrap_or_default())?;
    }
    Ok(())
}
