//! OSDs as storage targets, and the free space of a pool.

use crate::errors::Answer;
use crate::files::{Files, Found};
use crate::names;
use crate::partial::Part;
use crate::placement::{OsdId, Placement};
use crate::url::{FileLayout, Url};
use dray_core::layout::LAYOUT_STRIPES_MAX;
use dray_core::{Layout, TargetId};
use dray_store::{FreeSpace, Target};
use serde_json::{Value, json};
use std::ffi::CStr;
use std::sync::Arc;

impl Files {
    fn placement(&self) -> Arc<Placement> {
        self.places.now(&self.data.cluster)
    }

    /// Returns the OSD that serves an object of a file, if it is known.
    pub(crate) fn osd(&self, object: &CStr) -> Option<OsdId> {
        let Url {
            pool, namespace, ..
        } = &self.url;
        self.placement()
            .primary_of(pool, namespace, object.to_bytes())
    }

    /// Returns the OSD that serves an object of the state namespace, if it is known.
    pub(crate) fn state_osd(&self, object: &CStr) -> Option<OsdId> {
        self.placement().primary_of(
            &self.url.pool,
            &self.url.state_namespace(),
            object.to_bytes(),
        )
    }

    /// Returns one target for each OSD number up to the largest OSD of the pool.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let osds = self.placement().osds_of(&self.url.pool);
        let last = osds.last().map_or(0, |osd| osd.0);
        let targets = (0..=last).map(|number| Target {
            id: TargetId(number),
            name: format!("osd.{number}"),
            device: None,
        });
        targets.collect()
    }

    /// Returns the targets of all bytes of an existing file, or the target of the first object of a
    /// file that does not exist yet.
    pub(crate) fn layout_of(&self, full: &[u8], found: Option<&Found>) -> Layout {
        match found {
            Some(found) => self.layout_for(full, &found.layout, found.size),
            None => self.layout_for(full, &self.url.layout, 1),
        }
    }

    /// Returns the targets of the bytes of a file with this layout and size.
    pub(crate) fn layout_for(&self, full: &[u8], layout: &FileLayout, size: u64) -> Layout {
        let Url {
            pool, namespace, ..
        } = &self.url;
        let placement = self.placement();
        by_objects(layout, size, |number| {
            let object = names::object(full, number);
            placement.primary_of(pool, namespace, object.to_bytes())
        })
    }

    /// Returns the targets to which the bytes of a partial file are written. The bytes of the first
    /// object are written to the state object, which is often on another OSD than the first object
    /// of the published file.
    pub(crate) fn layout_of_part(&self, part: &Part, size: u64) -> Layout {
        let Url {
            pool, namespace, ..
        } = &self.url;
        let (placement, of_state) = (self.placement(), self.url.state_namespace());
        by_objects(&part.layout, size, |number| {
            let (namespace, object) = match number {
                0 => (&of_state, part.state()),
                number if part.is_direct => (namespace, part.object(number)),
                number => (&of_state, part.object(number)),
            };
            placement.primary_of(pool, namespace, object.to_bytes())
        })
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

/// Returns the targets of the bytes of a file, from the OSD of each of its objects.
fn by_objects(layout: &FileLayout, size: u64, osd: impl Fn(u64) -> Option<OsdId>) -> Layout {
    // A layout describes at most this number of stripes, so no more objects are needed.
    let count = layout.objects(size).min(LAYOUT_STRIPES_MAX as u64);
    let objects: Vec<TargetId> = (0..count)
        .map(|number| TargetId(osd(number).map_or(0, |osd| osd.0)))
        .collect();
    // Without striping, consecutive units of one object have one target.
    let stripe_bytes = match layout.stripe_count {
        1 => layout.object_size,
        _ => layout.stripe_unit,
    };
    let stripes = (0..size.div_ceil(stripe_bytes).max(1)).map(|stripe| {
        let object = layout.object_at(stripe * stripe_bytes);
        let target = usize::try_from(object)
            .ok()
            .and_then(|object| objects.get(object));
        target.copied().unwrap_or(TargetId(0))
    });
    Layout::of_stripes(stripe_bytes, stripes)
}
