//! One folder, or made-up bytes, for others to copy from and to: `dray serve`.

use crate::units;
use clap::Args;
use dray_open::prepare::RateInTime;
use dray_runtime::assembly::Threads;
use std::ffi::OsString;
use std::path::PathBuf;

const SERVE_EXAMPLES: &str = "\
Examples:
  (umask 077; head -c 24 /dev/urandom | base64 > token)
  dray serve --root /data --token-file token --listen 0.0.0.0:4735
  dray serve --root /data --token-file token --read-only

Without --listen only this host can connect (127.0.0.1:4735): opening a port to the world is for you
to say, with the address of the network card that is meant. The fingerprint that is printed is what
the other side gives as --peer-key.";

#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct Serve {
    /// The folder that is served; paths of requests are relative to it, and nothing leaves it. Or
    /// null:SIZE[xFILES[xFOLDERS]]: made-up bytes to read, and what is written is dropped
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,

    /// Where to listen (repeatable)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4735")]
    pub(crate) listen: Vec<String>,

    /// File with the token that a client must show
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,

    /// Folder of this host's key, made when missing
    #[arg(long, value_name = "DIR")]
    pub(crate) identity: Option<PathBuf>,

    /// Only let others read
    #[arg(long, conflicts_with = "write_only")]
    pub(crate) read_only: bool,

    /// Only let others write
    #[arg(long)]
    pub(crate) write_only: bool,

    /// Allow data connections without TLS to those who ask for them
    #[arg(long)]
    pub(crate) allow_clear_data: bool,

    /// Address of a listener that others should use for data (repeatable: several network cards)
    #[arg(long, value_name = "ADDR")]
    pub(crate) advertise: Vec<String>,

    /// The storage target that a folder beneath the root lies on (repeatable)
    #[arg(long, value_name = "DIR=NAME")]
    pub(crate) target: Vec<OsString>,

    /// Read and write large files past the page cache, where the file system lets that
    #[arg(long)]
    pub(crate) direct_io: bool,

    /// Take the space of large files when they begin, where the file system can do that: a full storage
    /// is known before the bytes travel
    #[arg(long)]
    pub(crate) preallocate: bool,

    /// Limit a storage target to a rate, to try out slow targets (repeatable);
    /// `NAME=RATE,RATE@SECONDS...` changes it so long after the first byte, `NAME=RATE,+SECONDS` has each
    /// read or write wait so long besides
    #[arg(long, value_name = "NAME=RATE", value_parser = units::target_rate)]
    pub(crate) limit_target: Vec<(String, RateInTime)>,

    /// Readers, or writers, of each storage target at the most, 1 to 64; auto: found while a transfer runs
    #[arg(long, value_name = "N", default_value = "4", value_parser = units::threads)]
    pub(crate) threads: Threads,

    /// Memory for the buffers of each transfer
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = units::pool)]
    pub(crate) pool: u64,

    /// Transfers at one time; further ones are refused
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) transfers_max: u16,

    /// Say the fingerprint and the addresses as one JSON object, and each transfer's end as one
    #[arg(long)]
    pub(crate) json: bool,
}
