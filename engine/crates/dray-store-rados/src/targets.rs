//! OSDs as storage targets, and the free space of a pool.

use crate::errors::Answer;
use crate::files::{Files, Found};
use crate::placement::OsdId;
use dray_core::{Layout, TargetId};
use dray_store::{FreeSpace, Target};
use serde_json::{Value, json};
use std::ffi::CStr;

impl Files {
    /// Returns the OSD that serves an object of a file, if it is known.
    pub(crate) fn osd(&self, _object: &CStr) -> Option<OsdId> {
        None
    }

    pub(crate) fn targets(&self) -> Vec<Target> {
        vec![Target {
            id: TargetId(0),
            name: format!("pool {}", self.url.pool),
            device: None,
        }]
    }

    /// Returns the targets of a file: of all its bytes if it exists, else of its first object.
    pub(crate) fn layout_of(&self, _full: &[u8], _found: Option<&Found>) -> Layout {
        Layout::Single(TargetId(0))
    }

    /// Returns the space of the pool, bounded by its quota.
    pub(crate) fn space(&self) -> Answer<FreeSpace> {
        let cluster = &self.data.cluster;
        let pool = &self.url.pool;
        let ask = |command: Value| -> Answer<Value> {
            let answer = cluster.ask_monitors(&command.to_string())?;
            Ok(serde_json::from_slice(&answer).unwrap_or(Value::Null))
        };
        let df = ask(json!({"prefix": "df", "format": "json"}))?;
        let pools = df["pools"].as_array().map_or(&[][..], Vec::as_slice);
        let stats = pools.iter().find(|one| one["name"] == pool.as_str());
        let number = |name: &str| stats.and_then(|one| one["stats"][name].as_u64());
        let Some(free) = number("max_avail") else {
            let sizes = cluster.sizes()?;
            return Ok(FreeSpace {
                free_bytes: sizes.kb_avail << 10,
                total_bytes: sizes.kb << 10,
            });
        };
        let stored = number("stored").unwrap_or(0);
        let quota = ask(json!({"prefix": "osd pool get-quota", "pool": pool, "format": "json"}));
        let quota = quota
            .ok()
            .and_then(|quota| quota["quota_max_bytes"].as_u64());
        let quota = quota.filter(|quota| *quota > 0);
        Ok(FreeSpace {
            free_bytes: free.min(quota.map_or(u64::MAX, |quota| quota.saturating_sub(stored))),
            total_bytes: (free + stored).min(quota.unwrap_or(u64::MAX)),
        })
    }
}
