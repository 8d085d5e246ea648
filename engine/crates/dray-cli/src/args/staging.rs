//! Options of `dray stage`.

use super::{Ask, id_there};
use crate::units;
use clap::{Args, Subcommand};
use dray_api::{StagedState, Timestamp};
use dray_core::TransferId;
use std::time::Duration;

const IN_EXAMPLES: &str = "\
Examples:
  dray stage in --application sim --pin 1h      the newest complete version, for a restart
  dray stage in --application sim --version 7
  dray stage in -r /slow/run42                  creates /fast/run42

The last line of the output shows the id, the state and the paths of the staged copy. If the version
is already on the fast root, nothing is copied, and this line contains the word `hit`.";

const OUT_EXAMPLES: &str = "\
Examples:
  dray stage out -r /fast/sim/7 --application sim --version 7
  dray stage out -r /fast/sim/7 --application sim --version 7 --period 1h --mtbf 2d
  dray stage out -r /fast/run42 --deadline 30m

With --application and --version, the tier of the fast root keeps the fast copy for restarts, and
deletes it when space is needed.";

#[derive(Debug, Subcommand)]
pub(crate) enum Stage {
    /// Copy a path, or the version from which an application restarts, from the slow root to the
    /// fast root
    In(StageIn),
    /// Copy from the fast root to the slow root
    Out(StageOut),
    /// List the staged copies
    List(ListStaged),
    /// Show one staged copy
    Show(OneStaged),
    /// Keep a fast copy for some time, even if space is needed
    Pin(PinStaged),
    /// Remove the pin of a fast copy
    Unpin(OneStaged),
    /// Delete a fast copy that has an equal slow copy
    Evict(OneStaged),
}

impl Stage {
    /// Returns the options of the call.
    pub(crate) const fn ask(&self) -> &Ask {
        match self {
            Self::In(stage) => &stage.how.at.ask,
            Self::Out(stage) => &stage.how.at.ask,
            Self::List(list) => &list.at.ask,
            Self::Show(one) | Self::Unpin(one) | Self::Evict(one) => &one.at.ask,
            Self::Pin(pin) => &pin.one.at.ask,
        }
    }
}

/// The endpoint of a command, and the options of the call.
#[derive(Debug, Args)]
pub(crate) struct AtEndpoint {
    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// Options of both directions.
#[derive(Debug, Args)]
pub(crate) struct HowToStage {
    /// Path of the copy (default: the same path in the other root)
    #[arg(long, value_name = "PATH")]
    pub(crate) to: Option<String>,

    /// Copy a folder with everything in it
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Id of the copy and of its transfer (default: chosen by the endpoint)
    #[arg(long, value_name = "ID", value_parser = id_there)]
    pub(crate) id: Option<TransferId>,

    /// Time by which the copy must be complete: 2026-11-21T17:00:00Z, or a time from now (30s, 20m,
    /// 12h, 7d)
    #[arg(long, value_name = "TIME", value_parser = units::moment)]
    pub(crate) deadline: Option<Timestamp>,

    /// Expected size of the copy; the promise of a deadline covers this size
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) bytes: Option<u64>,

    /// Copy without a promise if the endpoint cannot promise the deadline
    #[arg(long)]
    pub(crate) best_effort: bool,

    /// Priority of the transfer, 0 to 9
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,

    /// Name of the application
    #[arg(long, value_name = "NAME")]
    pub(crate) application: Option<String>,

    /// Version of the application's data, such as the number of a checkpoint
    #[arg(long, value_name = "N")]
    pub(crate) version: Option<u64>,

    /// Bypass the fast root: copy between the slow root and a root that is neither fast nor slow
    #[arg(long)]
    pub(crate) bypass: bool,

    /// Wait for the end of the copy (default)
    #[arg(long, overrides_with = "no_wait")]
    wait: bool,

    /// Exit as soon as the endpoint has accepted the request
    #[arg(long, overrides_with = "wait")]
    pub(crate) no_wait: bool,

    #[command(flatten)]
    pub(crate) at: AtEndpoint,
}

#[derive(Debug, Args)]
#[command(after_help = IN_EXAMPLES)]
pub(crate) struct StageIn {
    /// Path in the slow root, /ROOT/PATH. Without it, the newest complete version of --application
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<String>,

    /// Time for which the endpoint must keep the complete fast copy: 30s, 20m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub(crate) pin: Option<Duration>,

    /// Time after which the endpoint may delete the fast copy
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub(crate) lifetime: Option<Duration>,

    #[command(flatten)]
    pub(crate) how: HowToStage,
}

#[derive(Debug, Args)]
#[command(after_help = OUT_EXAMPLES)]
pub(crate) struct StageOut {
    /// Path in the fast root, /ROOT/PATH
    #[arg(value_name = "PATH")]
    pub(crate) path: String,

    /// Time between two versions that the application writes: 30s, 20m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub(crate) period: Option<Duration>,

    /// Mean time between failures of the application's hosts
    #[arg(long, value_name = "TIME", value_parser = units::time, conflicts_with = "nodes")]
    pub(crate) mtbf: Option<Duration>,

    /// Number of hosts of the application, from which the endpoint derives the time between
    /// failures (instead of --mtbf)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nodes: Option<u32>,

    /// Number of slow copies, 1 to 16. The endpoint refuses a number that its storage cannot make
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) replicas: u32,

    #[command(flatten)]
    pub(crate) how: HowToStage,
}

#[derive(Debug, Args)]
pub(crate) struct ListStaged {
    /// Only copies of this application
    #[arg(long, value_name = "NAME")]
    pub(crate) application: Option<String>,

    /// Only copies in this state: queued, moving, staged, failed or evicted
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub(crate) state: Option<StagedState>,

    /// Maximum number of copies, newest first
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    #[command(flatten)]
    pub(crate) at: AtEndpoint,
}

#[derive(Debug, Args)]
pub(crate) struct OneStaged {
    /// Id of the copy
    #[arg(value_name = "ID", value_parser = id_there)]
    pub(crate) id: TransferId,

    #[command(flatten)]
    pub(crate) at: AtEndpoint,
}

#[derive(Debug, Args)]
pub(crate) struct PinStaged {
    /// Duration of the pin, from now on: 30s, 20m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub(crate) lifetime: Duration,

    #[command(flatten)]
    pub(crate) one: OneStaged,
}

fn state(text: &str) -> Result<StagedState, String> {
    use StagedState::{Evicted, Failed, Moving, Queued, Staged};
    let all = [Queued, Moving, Staged, Failed, Evicted];
    all.into_iter()
        .find(|state| state.word() == text)
        .ok_or_else(|| "write `queued`, `moving`, `staged`, `failed` or `evicted`".to_owned())
}
