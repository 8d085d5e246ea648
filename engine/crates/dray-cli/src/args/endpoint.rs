//! Commands of endpoints: running one, tokens, and asking another.

use crate::units;
use clap::{Args, Subcommand, ValueEnum};
use dray_api::Timestamp;
use dray_core::TransferId;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Endpoint {
    /// Makes a folder with everything an endpoint needs: configuration, key, issuer of tokens
    Init(Init),
    /// Runs an endpoint (as the program drayd)
    Run(RunEndpoint),
    /// Says what an endpoint is and what it lets you do
    Status(Status),
}

const INIT_EXAMPLES: &str = "\
Examples:
  dray endpoint init /etc/dray --name dtn1.example.org --root data=/srv/data \\
      --listen 0.0.0.0:4735
  dray endpoint run --config /etc/dray/drayd.toml

What exists is left as it is.";

#[derive(Debug, Args)]
#[command(after_help = INIT_EXAMPLES)]
pub(crate) struct Init {
    /// The folder
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// The name of this host as others write it in dray:// URLs (default: the host's own)
    #[arg(long, value_name = "HOST")]
    pub(crate) name: Option<String>,

    /// A folder to export, and the name that paths to it begin with (repeatable)
    #[arg(long, value_name = "NAME=DIR")]
    pub(crate) root: Vec<String>,

    /// Where to listen (repeatable); only this host can connect without it
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<String>,

    /// Folder of the queue and of all else that must survive a restart (default: DIR/state)
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunEndpoint {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/dray/drayd.toml")]
    pub(crate) config: PathBuf,

    /// Say what happens as JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// HOST[:PORT] (else DRAY_ENDPOINT)
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// How another endpoint is asked.
#[derive(Debug, Args)]
pub(crate) struct Ask {
    #[command(flatten)]
    pub(crate) who: Who,

    /// Answer with JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How other hosts are known, and as whom they are asked.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Who {
    /// Fingerprint of the other host's key, as it prints it; HOST=sha256:HEX for one of several
    /// (else DRAY_PEER_KEY, several by commas; without any its certificate must be good for its
    /// name)
    #[arg(
        long,
        value_name = "sha256:HEX",
        value_delimiter = ',',
        help_heading = "The other host"
    )]
    pub(crate) peer_key: Vec<String>,

    /// Authorities of the other hosts' certificates, a file or a folder (else DRAY_CA, else the
    /// system's)
    #[arg(long, value_name = "FILE", help_heading = "The other host")]
    pub(crate) ca: Option<PathBuf>,

    /// File with the token of the other host; HOST=FILE for one of several (else DRAY_TOKEN,
    /// BEARER_TOKEN, BEARER_TOKEN_FILE or where WLCG tokens are kept; never an argument, which all
    /// users of this host could read)
    #[arg(long, value_name = "FILE", help_heading = "The other host")]
    pub(crate) token_file: Vec<String>,

    /// Your certificate, or proxy, with its key in one file, to show instead of a token (else
    /// X509_USER_PROXY)
    #[arg(long, value_name = "FILE", help_heading = "The other host")]
    pub(crate) cert: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Makes a token of this endpoint's own issuer, and prints it
    Mint(Mint),
    /// Says what a token holds (read from standard input or a file); nothing is checked
    Show(ShowToken),
}

#[derive(Debug, Args)]
pub(crate) struct Mint {
    /// The endpoint's folder, as dray endpoint init made it
    #[arg(long, value_name = "DIR", default_value = "/etc/dray")]
    pub(crate) dir: PathBuf,

    /// Of whom it is
    #[arg(long, value_name = "NAME")]
    pub(crate) sub: String,

    /// What it allows: storage.read:/PATH, storage.create:/PATH, storage.modify:/PATH,
    /// storage.stage:/PATH, by blanks (repeatable)
    #[arg(long, value_name = "SCOPES")]
    pub(crate) scope: Vec<String>,

    /// For whom it is (repeatable; default: this endpoint)
    #[arg(long, value_name = "AUDIENCE")]
    pub(crate) aud: Vec<String>,

    /// A group of the subject (repeatable)
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,

    /// How long it is good: 30s, 20m, 12h, 7d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = units::time)]
    pub(crate) lifetime: std::time::Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ShowToken {
    /// The file (default: standard input)
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Answer with JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An endpoint's transfers.
#[derive(Debug, Args)]
pub(crate) struct Transfers {
    /// HOST[:PORT] (else DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    /// Only those that are: queued, active, waiting, paused, done, incomplete, failed, cancelled,
    /// live or terminal (repeatable)
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Vec<String>,

    /// Only those with this label (repeatable)
    #[arg(long, value_name = "KEY:VALUE")]
    pub(crate) label: Vec<String>,

    /// Only those of this activity
    #[arg(long, value_name = "NAME")]
    pub(crate) activity: Option<String>,

    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// One transfer of an endpoint.
#[derive(Debug, Args)]
pub(crate) struct ShowTransfer {
    /// Its id
    #[arg(value_name = "ID", value_parser = super::id_there)]
    pub(crate) id: TransferId,

    /// HOST[:PORT] (else DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    /// Wait until it has ended; the exit code is then as of dray cp
    #[arg(long)]
    pub(crate) wait: bool,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// What an endpoint moves.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// HOST[:PORT] (else DRAY_ENDPOINT)
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    /// Once, also on a terminal, where it is else shown anew each second
    #[arg(long)]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// What a transfer between two other hosts is owed by the endpoint that carries it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Owed {
    /// Done by then, or refused: 2026-11-21T17:00:00Z, or so long from now (30s, 20m, 12h, 7d)
    #[arg(long, value_name = "TIME", value_parser = units::moment,
          help_heading = "Between two other hosts")]
    pub(crate) deadline: Option<Timestamp>,

    /// Begins then at the earliest
    #[arg(long, value_name = "TIME", value_parser = units::moment,
          help_heading = "Between two other hosts")]
    pub(crate) not_before: Option<Timestamp>,

    /// How much it will be: a deadline is promised for so much
    #[arg(long, value_name = "SIZE", value_parser = units::size,
          help_heading = "Between two other hosts")]
    pub(crate) bytes: Option<u64>,

    /// At least so much per second, or refused: 30MiB, 1G; a number alone is bytes
    #[arg(long, value_name = "RATE", value_parser = units::rate,
          help_heading = "Between two other hosts")]
    pub(crate) rate_min: Option<u64>,

    /// Who comes first (default: background, with a deadline deadline)
    #[arg(long, value_enum, help_heading = "Between two other hosts")]
    pub(crate) class: Option<Class>,

    /// Not refused when it cannot be promised what it asks for
    #[arg(long, help_heading = "Between two other hosts")]
    pub(crate) best_effort: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Class {
    Realtime,
    Deadline,
    Background,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Its id
    #[arg(value_name = "ID", value_parser = super::id_there)]
    pub(crate) id: TransferId,

    /// HOST[:PORT] (else DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    /// Remove what is safe of unfinished files as well
    #[arg(long)]
    pub(crate) purge: bool,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

/// Something at an endpoint.
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
    /// Which checksum
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
