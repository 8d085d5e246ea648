//! Profile of a transfer's time, in the form of the API.

use dray_core::profile::{Profile, Stage, Times};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

/// Work or wait of one end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageWord {
    /// The source waits for its own listing.
    List,
    /// At the source: it waits until the sink has decided what to do with its files. At the sink:
    /// it examines existing files and opens partial files.
    Decide,
    /// The source waits because of a rate limit.
    Rate,
    /// The source reads from its storage.
    Read,
    /// The source has objects that no stream accepts.
    Network,
    /// The source waits for free buffers of the sink.
    Credit,
    /// The source waits before a retry.
    Retry,
    /// The source has sent everything and waits for the sink to finish files.
    Verdict,
    /// The sink waits for objects to arrive.
    Arrival,
    /// The sink writes to its storage.
    Write,
    /// The sink makes written data durable.
    Sync,
    /// The sink reads files back, or gives them their final names.
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

impl From<StageWord> for Stage {
    fn from(word: StageWord) -> Self {
        match word {
            StageWord::List => Self::List,
            StageWord::Decide => Self::Decide,
            StageWord::Rate => Self::Rate,
            StageWord::Read => Self::Read,
            StageWord::Network => Self::Network,
            StageWord::Credit => Self::Credit,
            StageWord::Retry => Self::Retry,
            StageWord::Verdict => Self::Verdict,
            StageWord::Arrival => Self::Arrival,
            StageWord::Write => Self::Write,
            StageWord::Sync => Self::Sync,
            StageWord::Publish => Self::Publish,
        }
    }
}

/// Seconds that each end spent in each stage. Stages without time are left out. The map of an end
/// that has not reported yet is empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProfileAnswer {
    /// Seconds of the source by stage.
    pub source: BTreeMap<StageWord, f64>,
    /// Seconds of the sink by stage.
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
