//! Commands that run and query endpoints, and commands for tokens.

use crate::units;
use clap::{Args, Subcommand, ValueEnum};
use dray_api::{Timestamp, WriteState};
use dray_core::TransferId;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Endpoint {
    /// Create a folder with the configuration, the key and the token issuer of an endpoint
    Init(Init),
    /// Run an endpoint (as the program drayd)
    Run(RunEndpoint),
    /// Show an endpoint's identity and limits, and your permissions
    Status(Status),
}

const INIT_EXAMPLES: &str = "\
Examples:
  dray endpoint init /etc/dray --name dtn1.example.org --root data=/srv/data \\
      --listen 0.0.0.0:4735
  dray endpoint run --config /etc/dray/drayd.toml

Existing files are kept.";

#[derive(Debug, Args)]
#[command(after_help = INIT_EXAMPLES)]
pub(crate) struct Init {
    /// Folder to create
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// Name of this host in the dray:// URLs of other hosts (default: the host name)
    #[arg(long, value_name = "HOST")]
    pub(crate) name: Option<String>,

    /// Folder to export, and the first part of the paths to it (repeatable)
    #[arg(long, value_name = "NAME=DIR")]
    pub(crate) root: Vec<String>,

    /// Address to listen on (repeatable); without it, only this host can connect
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<String>,

    /// Folder for the queue and other persistent state (default: DIR/state)
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunEndpoint {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/dray/drayd.toml")]
    pub(crate) config: PathBuf,

    /// Print events as JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// Options of every command that calls an endpoint.
#[derive(Debug, Args)]
pub(crate) struct Ask {
    #[command(flatten)]
    pub(crate) who: Who,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for the authentication of other hosts, and credentials for them.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Who {
    /// Fingerprint of the other host's key, as that host prints it; HOST=sha256:HEX for one of
    /// several hosts (default: DRAY_PEER_KEY, comma-separated; without a fingerprint, the
    /// certificate must be valid for the host name)
    #[arg(
        long,
        value_name = "sha256:HEX",
        value_delimiter = ',',
        help_heading = "Remote host options"
    )]
    pub(crate) peer_key: Vec<String>,

    /// CA certificates for other hosts, a file or a folder (default: DRAY_CA, else the system's)
    #[arg(long, value_name = "FILE", help_heading = "Remote host options")]
    pub(crate) ca: Option<PathBuf>,

    /// File with the token for the other host; HOST=FILE for one of several hosts (default:
    /// DRAY_TOKEN, BEARER_TOKEN, BEARER_TOKEN_FILE or the WLCG token files). A token cannot be an
    /// argument, because all users of this host can read arguments
    #[arg(long, value_name = "FILE", help_heading = "Remote host options")]
    pub(crate) token_file: Vec<String>,

    /// Your certificate or proxy with its key in one file, used instead of a token (default:
    /// X509_USER_PROXY)
    #[arg(long, value_name = "FILE", help_heading = "Remote host options")]
    pub(crate) cert: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token of this endpoint's own issuer, and print it
    Mint(Mint),
    /// Show the contents of a token (from standard input or a file); the signature is not checked
    Show(ShowToken),
}

#[derive(Debug, Args)]
pub(crate) struct Mint {
    /// Folder of the endpoint, created by dray endpoint init
    #[arg(long, value_name = "DIR", default_value = "/etc/dray")]
    pub(crate) dir: PathBuf,

    /// Subject of the token
    #[arg(long, value_name = "NAME")]
    pub(crate) sub: String,

    /// Permissions: storage.read:/PATH, storage.create:/PATH, storage.modify:/PATH,
    /// storage.stage:/PATH, separated by spaces (repeatable)
    #[arg(long, value_name = "SCOPES")]
    pub(crate) scope: Vec<String>,

    /// Audience of the token (repeatable; default: this endpoint)
    #[arg(long, value_name = "AUDIENCE")]
    pub(crate) aud: Vec<String>,

    /// Group of the subject (repeatable)
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,

    /// Lifetime of the token: 30s, 20m, 12h, 7d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = units::time)]
    pub(crate) lifetime: std::time::Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ShowToken {
    /// File with the token (default: standard input)
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `dray transfers`: filters of the list.
#[derive(Debug, Args)]
pub(crate) struct Transfers {
    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    /// Only transfers in this state: queued, active, waiting, paused, done, incomplete, failed,
    /// cancelled, live or terminal (repeatable)
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Vec<String>,

    /// Only transfers with this label (repeatable)
    #[arg(long, value_name = "KEY:VALUE")]
    pub(crate) label: Vec<String>,

    /// Only transfers of this activity
    #[arg(long, value_name = "NAME")]
    pub(crate) activity: Option<String>,

    /// Maximum number of transfers, newest first
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// Options of `dray show`.
#[derive(Debug, Args)]
pub(crate) struct ShowTransfer {
    /// Id of the transfer
    #[arg(value_name = "ID", value_parser = super::id_there)]
    pub(crate) id: TransferId,

    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    /// Wait for the end of the transfer, and exit with the code of dray cp
    #[arg(long)]
    pub(crate) wait: bool,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// Options of `dray top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    /// Print once and exit, also on a terminal, where the view otherwise refreshes every second
    #[arg(long)]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tier {
    /// Show the space, the written bytes and the rates of each tier, or one tier with its versions
    Show(ShowTier),
    /// List the write jobs of a tier
    Writes(ListWrites),
    /// Measure the bandwidths of a fast and a slow device, and print the keys for [[tier]]
    Calibrate(super::Calibrate),
}

/// Options of `dray tier show`.
#[derive(Debug, Args)]
pub(crate) struct ShowTier {
    /// Name of a tier
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// Options of `dray tier writes`.
#[derive(Debug, Args)]
pub(crate) struct ListWrites {
    /// Name of the tier
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// List only jobs of this application
    #[arg(long, value_name = "NAME")]
    pub(crate) application: Option<String>,

    /// List only jobs in this state: waiting, granted, ended or expired
    #[arg(long, value_name = "STATE", value_parser = write_state)]
    pub(crate) state: Option<WriteState>,

    /// Maximum number of jobs
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

fn write_state(word: &str) -> Result<WriteState, String> {
    WriteState::parse(word)
        .ok_or_else(|| "write `waiting`, `granted`, `ended` or `expired`".to_owned())
}

/// Options for promises that the driving endpoint makes for a transfer between two endpoints.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Owed {
    /// Time by which the transfer must complete: 2026-11-21T17:00:00Z, or a time from now (30s,
    /// 20m, 12h, 7d). The endpoint refuses the transfer if it cannot promise the deadline
    #[arg(long, value_name = "TIME", value_parser = units::moment,
          help_heading = "Options between two endpoints")]
    pub(crate) deadline: Option<Timestamp>,

    /// Earliest start time
    #[arg(long, value_name = "TIME", value_parser = units::moment,
          help_heading = "Options between two endpoints")]
    pub(crate) not_before: Option<Timestamp>,

    /// Expected size of the transfer; the promise of a deadline covers this size
    #[arg(long, value_name = "SIZE", value_parser = units::size,
          help_heading = "Options between two endpoints")]
    pub(crate) bytes: Option<u64>,

    /// Minimum rate per second: 30MiB, 1G; a number without a unit is bytes. The endpoint refuses
    /// the transfer if it cannot promise the rate
    #[arg(long, value_name = "RATE", value_parser = units::rate,
          help_heading = "Options between two endpoints")]
    pub(crate) rate_min: Option<u64>,

    /// Scheduling class (default: deadline with --deadline, else background)
    #[arg(long, value_enum, help_heading = "Options between two endpoints")]
    pub(crate) class: Option<Class>,

    /// Accept the transfer without a promise if the endpoint cannot promise --deadline or
    /// --rate-min
    #[arg(long, help_heading = "Options between two endpoints")]
    pub(crate) best_effort: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Class {
    Realtime,
    Deadline,
    Background,
}

impl From<Class> for dray_core::rate::Class {
    fn from(class: Class) -> Self {
        match class {
            Class::Realtime => Self::Realtime,
            Class::Deadline => Self::Deadline,
            Class::Background => Self::Background,
        }
    }
}

/// Options of `dray retry`.
#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// Ids of transfers that have ended
    #[arg(value_name = "ID", value_parser = super::id_there, required_unless_present = "all_failed")]
    pub(crate) ids: Vec<TransferId>,

    /// Retry each of your own failed transfers whose error is not permanent
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all_failed: bool,

    /// With --all-failed: retry the transfers of this owner instead (for administrators)
    #[arg(
        long,
        value_name = "NAME",
        requires = "all_failed",
        conflicts_with_all = ["all_owners", "ids"]
    )]
    pub(crate) owner: Option<String>,

    /// With --all-failed: retry the transfers of all owners (for administrators)
    #[arg(long, requires = "all_failed", conflicts_with = "ids")]
    pub(crate) all_owners: bool,

    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Id of the transfer
    #[arg(value_name = "ID", value_parser = super::id_there)]
    pub(crate) id: TransferId,

    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    /// Remove the durable data of unfinished files as well
    #[arg(long)]
    pub(crate) purge: bool,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// A path at an endpoint, and the options of the call.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// dray://HOST[:PORT]/ROOT/PATH; any byte of a name may be written as %HH
    #[arg(value_name = "URL")]
    pub(crate) url: OsString,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Remove folders with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,

    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Sum {
    /// Checksum algorithm
    #[arg(long, value_enum, default_value_t = Algorithm::Adler32)]
    pub(crate) algorithm: Algorithm,

    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    Adler32,
    Crc32c,
}
