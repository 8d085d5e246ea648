//! JSON answers of a cluster.

use crate::placement::OsdId;
use dray_core::{End, Error, ErrorKind, Result};
use serde::Deserialize;

/// The parts of the answer to `osd dump` that the placement needs.
#[derive(Debug, Deserialize)]
pub(super) struct OsdDump {
    pub(super) epoch: u64,
    pub(super) pools: Vec<PoolEntry>,
    pub(super) osds: Vec<OsdEntry>,
}

/// An OSD in the OSD map.
#[derive(Debug, Deserialize)]
pub(super) struct OsdEntry {
    pub(super) osd: u32,
    /// 1 if the OSD is up, otherwise 0.
    pub(super) up: u32,
}

/// A pool in the OSD map.
#[derive(Debug, Deserialize)]
pub(super) struct PoolEntry {
    pub(super) pool: u64,
    pub(super) pool_name: String,
    pub(super) pg_num: u32,
    pub(super) object_hash: u32,
}

/// A placement group in the answer to `pg dump` or `pg map`.
#[derive(Debug, Deserialize)]
pub(super) struct Brief {
    pub(super) pgid: String,
    #[serde(default)]
    acting: Vec<i64>,
    acting_primary: Option<i64>,
}

impl Brief {
    /// Returns the acting primary. If an answer does not name it (`pg map`), the primary is the
    /// first OSD of the acting set. Ceph writes a gap in the set as 2147483647.
    pub(super) fn primary(&self) -> Option<OsdId> {
        let is_osd = |number: &i64| (0..i64::from(i32::MAX)).contains(number);
        let first = || self.acting.iter().copied().find(is_osd);
        let number = self.acting_primary.filter(is_osd).or_else(first)?;
        u32::try_from(number).ok().map(OsdId)
    }
}

#[derive(Deserialize)]
struct EpochOnly {
    epoch: u64,
}

/// Ceph before version 14 answers with the list only.
#[derive(Deserialize)]
#[serde(untagged)]
enum PgDump {
    Now { pg_stats: Vec<Brief> },
    Before(Vec<Brief>),
}

fn parse<'a, T: Deserialize<'a>>(command: &str, answer: &'a [u8]) -> Result<T> {
    serde_json::from_slice(answer).map_err(|why| {
        Error::new(
            ErrorKind::Other,
            End::Here,
            format!("read the answer of the Ceph cluster to \"{command}\""),
        )
        .cause(why.to_string())
    })
}

pub(super) fn osd_dump(answer: &[u8]) -> Result<OsdDump> {
    parse("osd dump", answer)
}

/// Returns the epoch in the answer to `osd stat`.
pub(super) fn epoch(answer: &[u8]) -> Result<u64> {
    parse("osd stat", answer).map(|found: EpochOnly| found.epoch)
}

pub(super) fn pg_dump(answer: &[u8]) -> Result<Vec<Brief>> {
    parse("pg dump", answer).map(|found| match found {
        PgDump::Now { pg_stats: groups } | PgDump::Before(groups) => groups,
    })
}

pub(super) fn pg_map(answer: &[u8]) -> Result<Brief> {
    parse("pg map", answer)
}

/// Parses the number of a pool and of a group: `3.1f`.
pub(super) fn group(pgid: &str) -> Option<(u64, usize)> {
    let (pool, group) = pgid.split_once('.')?;
    Some((pool.parse().ok()?, usize::from_str_radix(group, 16).ok()?))
}
