//! Where the time of a transfer went, as callers see it.

use dray_core::profile::{Profile, Stage, Times};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

/// What an end waits for, or works on, at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageWord {
    /// The source's listing.
    List,
    /// What the sink has of the files, and opening partial files.
    Decide,
    /// The rate.
    Rate,
    /// The source's reads.
    Read,
    /// Streams that take no more.
    Network,
    /// Free buffers of the sink.
    Credit,
    /// The time of another try.
    Retry,
    /// The sink, with nothing left to send.
    Verdict,
    /// Nothing: the sink has what has come.
    Arrival,
    /// The sink's writes.
    Write,
    /// The sink's syncs.
    Sync,
    /// Final names, and reading back.
    Publish,
}

impl From<Stage> for StageWord {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::List => Self::List,
            Stage::Decide => Self::Decide,
            Stage::Rate => Self::Rate,
            Stage::Read => Self::Read,
            Stage::Network => Self::Network,
            Stage::Credit => Self::Credit,
            Stage::Retry => Self::Retry,
            Stage::Verdict => Self::Verdict,
            Stage::Arrival => Self::Arrival,
            Stage::Write => Self::Write,
            Stage::Sync => Self::Sync,
            Stage::Publish => Self::Publish,
        }
    }
}

/// Seconds that each end was in each stage; one that took no time is left out, and so is all of an
/// end that has not told yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProfileAnswer {
    /// The source.
    pub source: BTreeMap<StageWord, f64>,
    /// The sink.
    pub sink: BTreeMap<StageWord, f64>,
}

impl From<&Profile> for ProfileAnswer {
    fn from(profile: &Profile) -> Self {
        let seconds = |times: &Times| {
            let rounded = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
            let all = times.iter();
            all.map(|(stage, time)| (stage.into(), rounded(time)))
                .collect()
        };
        Self {
            source: seconds(&profile.source),
            sink: seconds(&profile.sink),
        }
    }
}
