//! Options of `dray plan`.

use super::{Owed, What, Who};
use clap::Args;

#[derive(Debug, Args)]
#[command(override_usage = "dray plan [OPTIONS] SRC... DST")]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) what: What,

    /// Show the ranges of each file with their storage targets at the source and at the sink
    #[arg(long, help_heading = "Output options")]
    pub(crate) layout: bool,

    #[command(flatten)]
    pub(crate) owed: Owed,

    #[command(flatten)]
    pub(crate) who: Who,
}
