//! Options of `dray serve`.

use crate::units;
use clap::Args;
use dray_core::{LogChoice, LogForm, StripeChoice};
use dray_open::prepare::RateInTime;
use dray_runtime::assembly::Threads;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

const SERVE_EXAMPLES: &str = "\
Examples:
  (umask 077; head -c 24 /dev/urandom | base64 > token)
  dray serve --root /data --token-file token --listen 0.0.0.0:4735
  dray serve --root /data --token-file token --read-only

Without --listen only this host can connect (127.0.0.1:4735). To serve other hosts, name the address
of a network card. Clients pass the printed fingerprint as --peer-key.";

#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct Serve {
    /// Folder to serve; paths of requests are relative to it and cannot leave it. With
    /// null:SIZE[xFILES[xFOLDERS]], clients read generated data, and written data is discarded
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,

    /// Address to listen on (repeatable)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4735")]
    pub(crate) listen: Vec<String>,

    /// File with the token that clients must present
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,

    /// Folder of this host's key, created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) identity: Option<PathBuf>,

    /// Allow only reads
    #[arg(long, conflicts_with = "write_only")]
    pub(crate) read_only: bool,

    /// Allow only writes
    #[arg(long)]
    pub(crate) write_only: bool,

    /// Allow data connections without TLS to clients that request them
    #[arg(long)]
    pub(crate) allow_clear_data: bool,

    /// Address of a listener that clients should use for data (repeatable: several network cards)
    #[arg(long, value_name = "ADDR")]
    pub(crate) advertise: Vec<String>,

    /// Storage target of a folder beneath the root (repeatable)
    #[arg(long, value_name = "DIR=NAME")]
    pub(crate) target: Vec<OsString>,

    /// Bypass the page cache for large files, if the file system supports it
    #[arg(long)]
    pub(crate) direct_io: bool,

    /// Allocate the space of large files before their data is received, if the file system supports
    /// it, so that a full file system is detected early
    #[arg(long)]
    pub(crate) preallocate: bool,

    /// Lustre stripes of received files, if the client requests none: source (the stripes of the
    /// source file, if the client uses --xattrs), COUNT or COUNT:SIZE; with source, files that
    /// clients read are also sent with their stripes
    #[arg(long, value_name = "STRIPES", value_parser = StripeChoice::from_str)]
    pub(crate) stripe: Option<StripeChoice>,

    /// Form of the object logs of received files: MECHANISM:METHOD, as in dray cp --log. Clients
    /// cannot choose it (default: universal:ranges; a copy that resumes keeps the form of its log)
    #[arg(long, value_name = "FORM", value_parser = LogForm::from_str)]
    pub(crate) log: Option<LogForm>,

    /// Keep the object logs of received files in memory. A copy that is interrupted starts over. Only
    /// for measurements of the cost of logs
    #[arg(long, hide = true, conflicts_with = "log")]
    pub(crate) log_in_memory: bool,

    /// Read the layout of Lustre files from this extended attribute. Only for tests without Lustre
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) lustre_attribute: Option<String>,

    /// Limit a storage target to a rate, to simulate slow targets (repeatable);
    /// `NAME=RATE,RATE@SECONDS...` changes the rate that many seconds after the first byte,
    /// `NAME=RATE,+SECONDS` delays each read or write
    #[arg(long, value_name = "NAME=RATE", value_parser = units::target_rate)]
    pub(crate) limit_target: Vec<(String, RateInTime)>,

    /// Maximum number of readers or writers of each storage target, 1 to 64, or auto to tune it
    /// during a transfer
    #[arg(long, value_name = "N", default_value = "4", value_parser = units::threads)]
    pub(crate) threads: Threads,

    /// Memory for the buffers of each transfer
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = units::pool)]
    pub(crate) pool: u64,

    /// Maximum number of concurrent transfers; more are refused
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) transfers_max: u16,

    /// Print the fingerprint and the addresses as one JSON object, and the end of each transfer as
    /// another
    #[arg(long)]
    pub(crate) json: bool,
}

impl Serve {
    /// Returns the requested object log; `None` for the usual log.
    pub(crate) fn log_choice(&self) -> Option<LogChoice> {
        match self.log_in_memory {
            true => Some(LogChoice::Memory),
            false => self.log.map(LogChoice::Stored),
        }
    }
}
