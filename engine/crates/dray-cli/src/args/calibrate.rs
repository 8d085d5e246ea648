//! Options of `dray tier calibrate`.

use crate::units;
use clap::Args;
use dray_runtime::calibrate::BYTES_MIN;
use std::path::PathBuf;
use std::time::Duration;

const CALIBRATE_NOTES: &str = "\
Example:
  dray tier calibrate /mnt/nvme/checkpoints /mnt/disks/checkpoints

Run the command on the host of the endpoint while nothing else uses the two devices. The command
writes to SLOW alone, to FAST alone, and to FAST while it reads from FAST at five rates. It prints
the keys of [[tier]], and each sample as a comment. With --rounds 2 and --time 5s it takes about 70
seconds.

The files have no names, so no file remains in the folders, even if the command is killed. The
printed rates are those of the devices, not of the page cache, because the command uses direct I/O.
On a file system without direct I/O, it counts only bytes that are synced.";

/// Maximum of `--time`.
const TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
#[command(after_help = CALIBRATE_NOTES)]
pub(crate) struct Calibrate {
    /// Folder on the fast device
    #[arg(value_name = "FAST")]
    pub(crate) fast: PathBuf,

    /// Folder on the slow device
    #[arg(value_name = "SLOW")]
    pub(crate) slow: PathBuf,

    /// Maximum size of the files in each folder, at least 64MiB. A size above the cache of the
    /// devices gives more exact numbers
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub(crate) size: u64,

    /// Duration of each sample, at most 60s
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) time: Duration,

    /// Number of samples at each read rate, 1 to 20
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rounds: u32,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn size(text: &str) -> Result<u64, String> {
    match units::size(text)? {
        bytes if bytes < BYTES_MIN => Err(format!(
            "the files of the measurement need at least {}",
            units::human(BYTES_MIN)
        )),
        bytes => Ok(bytes),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    match units::time(text)? {
        time if time > TIME_MAX => Err("the time of a sample can be at most 60s".to_owned()),
        time => Ok(time),
    }
}
