//! Options of `dray chaos`.

use clap::Args;
use std::path::PathBuf;

const CHAOS_NOTES: &str = "\
The plan is a TOML file; --example prints one that explains every key. The run repeats the copy until
the copy succeeds, and meanwhile injects the faults of the plan. It then checks these promises: the
destination has the content of the source; no file under a final name was ever incomplete or wrong,
and no success was reported too early; the bytes that were sent again are within the bound; no files
of dray are left. To repeat a run, use the printed seed. Ctrl-C kills all processes of the run.

Exit codes:
  0  all faults were injected, all bytes were measured, and all promises held
  1  a promise was broken
  2  usage error, or the plan has a mistake
  3  no verdict: a program did not start, the copy failed before the first fault, a fault was not
     injected, or the bytes that were sent again were not measured
  5  stopped by a signal";

#[derive(Debug, Args)]
#[command(after_help = CHAOS_NOTES)]
pub(crate) struct Chaos {
    /// File with the plan
    #[arg(value_name = "PLAN", required_unless_present = "example")]
    pub(crate) plan: Option<PathBuf>,

    /// Print a complete plan, which explains every key
    #[arg(long, exclusive = true)]
    pub(crate) example: bool,

    /// Seed of the faults, instead of the seed in the plan
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Print the faults that the plan and the seed determine, without running anything
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Keep the folder with the outputs of all programs. It is kept in any case if a promise was
    /// broken
    #[arg(long)]
    pub(crate) keep: bool,

    /// Print the verdict as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
