//! The command line: commands, options and help texts.

mod calibrate;
mod chaos;
mod endpoint;
mod plan;
mod receipt;
mod serve;
mod staging;
mod trust;
mod values;

pub(crate) use calibrate::Calibrate;
pub(crate) use chaos::Chaos;
pub(crate) use endpoint::{
    Algorithm, Ask, At, Cancel, Endpoint, Init, ListWrites, Mint, Owed, Retry, Rm, RunEndpoint,
    ShowTier, ShowToken, ShowTransfer, Status, Sum, Tier, Token, Top, Transfers, Who,
};
pub(crate) use plan::Plan;
pub(crate) use receipt::{GetReceipt, Receipt, ReceiptKey, ShowReceipt, VerifyReceipt};
pub(crate) use serve::Serve;
pub(crate) use staging::{AtEndpoint, HowToStage, ListStaged, Stage, StageIn, StageOut};
pub(crate) use trust::{Trust, UpdateTrust};
pub(crate) use values::{Durability, Links, Overwrite, Reflink, Resume, Show};

use crate::units;
use clap::{Args, Parser, Subcommand};
use dray_api::reserved_id;
use dray_core::options::{self, Order};
use dray_core::{ByteRange, Checksum, TransferId};
use dray_core::{LogForm, StripeChoice};
use dray_open::locations::{Places, Written};
use dray_open::prepare::RateInTime;
use dray_runtime::assembly::{Content, Threads};
use dray_runtime::drive::StreamCount;
use dray_wire::message::Selection;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;

const EXIT_CODES: &str = "\
Exit codes:
  0  success: all requested data is durable at the destination
  1  some files failed (each is reported), or the output could not be written; all other files are
     durable
  2  usage error
  3  refused before any data moved: another transfer writes to the destination, wrong key or token,
     no permission, nothing to copy
  4  the other host is unreachable
  5  interrupted; durable data is kept: the same command resumes";

const CP_EXAMPLES: &str = "\
Examples:
  dray cp big.root /data/new-name.root          one file, under a new name
  dray cp big.root /data/                       one file, into a folder
  dray cp -r run42 /data                        creates /data/run42
  dray cp -r run42/ /data                       the contents of run42, into /data
  dray cp -r run42 dray://dtn2.example/in \\
      --peer-key sha256:... --token-file t      push to another host (see dray serve)
  dray cp -r dray://dtn2.example/run42 /data    pull from it (DRAY_PEER_KEY, DRAY_TOKEN set)
  dray cp -r dray://dtn1.example/data/run42 \\
      dray://dtn2.example/data/                 from endpoint to endpoint; this host only watches
  dray cp https://www.example/big.root /data/   from a web server; folders need WebDAV
  dray cp root://server.example//d/f /data/     from an XRootD server (make build-xrootd)
  dray cp -r run42 root://server.example//d/    to an XRootD server
  dray cp globus://UUID/f globus://UUID2/in/    by Globus (needs the Python package dray[globus])
  dray cp --range 1GiB:64MiB big.root part      64 MiB of the file
  dray cp null:4GiB null:                       without storage, to measure everything else

The meaning of DST never depends on what exists there. DST is a folder if -r is given, if there are
several sources, or if DST ends in a slash (or is . or ..). Otherwise DST is the new name of the
file.
After any fault, run the same command again: durable data is not sent again.";

const SWEEP_NOTES: &str = "\
Complete files and the data of running copies are never removed. The partial data of an interrupted
copy is removed if it is old enough, even if the copy could still resume: the same copy then starts
from the beginning. Unreadable logs are reported and kept.";

/// Move scientific data between hosts and storage: in objects, out of order, with a checksum for
/// every byte, resuming after any fault
#[derive(Debug, Parser)]
#[command(name = "dray", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Dray {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files and folders
    Cp(Box<Cp>),
    /// Serve one folder to other hosts
    Serve(Serve),
    /// Run and query endpoints, the services that run transfers
    #[command(subcommand)]
    Endpoint(Endpoint),
    /// Create and show bearer tokens
    #[command(subcommand)]
    Token(Token),
    /// Fetch the trusted files of an endpoint: authorities, revocation lists, keys of issuers
    #[command(subcommand)]
    Trust(Trust),
    /// List the transfers of an endpoint
    Transfers(Transfers),
    /// Show one transfer of an endpoint
    Show(ShowTransfer),
    /// Save, show and verify receipts: signed records of ended transfers
    #[command(subcommand)]
    Receipt(Receipt),
    /// Show the current transfers, owners and deadlines of an endpoint
    Top(Top),
    /// Show and measure tiers: fast roots that an endpoint copies to a slow root
    #[command(subcommand)]
    Tier(Tier),
    /// Stage copies between the slow root and the fast root of an endpoint
    #[command(subcommand)]
    Stage(Stage),
    /// Cancel a transfer of an endpoint
    Cancel(Cancel),
    /// Start a new attempt of transfers of an endpoint that have ended
    Retry(Retry),
    /// List a folder at an endpoint, or its roots if the URL has no path (dray://HOST)
    Ls(At),
    /// Show the type, size and time of a path at an endpoint
    Stat(At),
    /// Remove a file or folder at an endpoint
    Rm(Rm),
    /// Show the checksum of a file at an endpoint
    Checksum(Sum),
    /// Show what a copy would do, without changing anything
    Plan(Box<Plan>),
    /// Inspect object logs, which record the durable data of unfinished copies
    #[command(subcommand)]
    Log(Log),
    /// Inject faults into a copy between your own programs, and check the promises of dray
    Chaos(Chaos),
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completion {
        /// Shell that the script is for
        shell: clap_complete::Shell,
    },
    /// Print the command line reference as Markdown
    #[command(hide = true)]
    DocsCli,
}

impl Command {
    /// Returns true if standard output must be JSON (`--json`).
    pub(crate) const fn is_json(&self) -> bool {
        match self {
            Self::Cp(cp) => cp.what.json,
            Self::Plan(plan) => plan.what.json,
            Self::Transfers(list) => list.ask.json,
            Self::Show(show) => show.ask.json,
            Self::Top(top) => top.ask.json,
            Self::Tier(Tier::Show(show)) => show.ask.json,
            Self::Tier(Tier::Calibrate(calibrate)) => calibrate.json,
            Self::Stage(stage) => stage.ask().json,
            Self::Cancel(cancel) => cancel.ask.json,
            Self::Retry(retry) => retry.ask.json,
            Self::Ls(at) | Self::Stat(at) => at.ask.json,
            Self::Rm(rm) => rm.at.ask.json,
            Self::Checksum(sum) => sum.at.ask.json,
            Self::Log(Log::List(log) | Log::Show(log) | Log::Verify(log) | Log::Explain(log)) => {
                log.json
            }
            Self::Log(Log::Export(_)) => true,
            Self::Log(Log::Sweep(sweep)) => sweep.json,
            Self::Trust(Trust::Update(update)) => update.json,
            Self::Chaos(chaos) => chaos.json,
            Self::Receipt(Receipt::Get(get)) => get.ask.json,
            Self::Receipt(Receipt::Show(show)) => show.json,
            Self::Receipt(Receipt::Verify(verify)) => verify.json,
            _ => false,
        }
    }
}

/// Sources, destination and common options of `cp` and `plan`.
#[derive(Debug, Args)]
pub(crate) struct What {
    /// One or more sources, then the destination. Each may be dray://HOST[:PORT]/PATH
    #[arg(value_name = "SRC... DST", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,

    /// Copy folders with everything in them; DST is then a folder
    #[arg(short, long, help_heading = "Selection options")]
    pub(crate) recursive: bool,

    /// Copy only files that match (repeatable): '*.root' by name, 'run?/**' by path
    #[arg(long, value_name = "PATTERN", help_heading = "Selection options")]
    pub(crate) include: Vec<String>,

    /// Exclude files and folders that match (repeatable)
    #[arg(long, value_name = "PATTERN", help_heading = "Selection options")]
    pub(crate) exclude: Vec<String>,

    /// Copy only LENGTH bytes from OFFSET of one file, into a file of LENGTH bytes
    #[arg(long, value_name = "OFFSET:LENGTH", value_parser = units::range,
          help_heading = "Selection options")]
    pub(crate) range: Option<ByteRange>,

    /// Treatment of symbolic links: keep them as links, follow them, or refuse (fail) them
    #[arg(long, value_enum, default_value_t = Links::Keep, help_heading = "Selection options")]
    pub(crate) links: Links,

    /// Treatment of existing files: keep them, replace those that differ in size, time or known
    /// checksum, or replace all
    #[arg(long, value_enum, default_value_t = Overwrite::IfDifferent,
          help_heading = "Selection options")]
    pub(crate) overwrite: Overwrite,

    /// Expected checksum of the single file: adler32:HHHHHHHH or crc32c:HHHHHHHH
    #[arg(long, value_name = "SUM", value_parser = units::checksum,
          help_heading = "Selection options")]
    pub(crate) checksum: Option<Checksum>,

    /// Condition under which bytes count as durable: none (once written), file (once the file is on
    /// stable storage, before it gets its final name) or object (each object separately)
    #[arg(long, value_enum, default_value_t = Durability::File, help_heading = "Copy options")]
    pub(crate) durability: Durability,

    /// Bytes of an object, the unit of transfer: 4KiB to 64MiB (default: 1MiB; 4MiB if an end is a
    /// Ceph pool)
    #[arg(long, value_name = "SIZE", value_parser = units::object_size,
          help_heading = "Copy options")]
    pub(crate) object_size: Option<u64>,

    /// Storage target of a local folder (repeatable; default: the device of the folder)
    #[arg(long, value_name = "DIR=NAME", help_heading = "Copy options")]
    pub(crate) target: Vec<OsString>,

    /// Extended attribute to read instead of lustre.lov, to simulate Lustre on other file systems
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) lustre_attribute: Option<String>,

    /// Print one JSON object on standard output at the end
    #[arg(long, help_heading = "Output options")]
    pub(crate) json: bool,
}

impl What {
    /// Returns the options that decide the outcome of a file at both ends.
    pub(crate) fn options(&self, places: &Places) -> options::Options {
        options::Options {
            durability: self.durability.into(),
            overwrite: self.overwrite.into(),
            object_bytes: places.object_bytes(self.object_size),
            ..options::Options::default()
        }
    }

    /// Returns the selection of entries: patterns and range.
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            recursive: self.recursive,
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            range: self.range,
            links: self.links.into(),
            ..Selection::default()
        }
    }

    /// Returns the expected content of a single file.
    pub(crate) fn content(&self) -> Content {
        Content {
            demanded: self.checksum,
            range: self.range,
            ..Content::default()
        }
    }

    /// Parses the sources and the destination.
    pub(crate) fn places(&self) -> dray_core::Result<Places> {
        // `paths` is never empty, because clap requires at least two paths.
        let (destination, sources) = match self.paths.split_last() {
            Some((last, rest)) => (last.as_os_str(), rest),
            None => (OsStr::new(""), &[][..]),
        };
        Places::read(&Written {
            sources,
            destination,
            recursive: self.recursive,
            links: self.links.into(),
            about_one_file: self.range.is_some() || self.checksum.is_some(),
            may_be_null: true,
        })
    }
}

impl Cp {
    /// Returns true if the copy may share blocks with the original. Returns false if checksums are
    /// requested, because checksums must cover bytes that were read and written.
    pub(crate) fn may_share_blocks(&self) -> bool {
        let promised = self.checksum_attributes || self.what.checksum.is_some();
        self.reflink == Reflink::Auto && !promised
    }

    /// Returns the options of both ends.
    pub(crate) fn options(&self, places: &Places) -> options::Options {
        options::Options {
            order: self.order,
            verify: self.verify,
            resume: self.resume.into(),
            xattrs: self.xattrs,
            checksum_attributes: self.checksum_attributes,
            rate: self.rate,
            stripes: self.stripe,
            ..self.what.options(places)
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = CP_EXAMPLES, override_usage = "dray cp [OPTIONS] SRC... DST")]
pub(crate) struct Cp {
    #[command(flatten)]
    pub(crate) what: What,

    /// URL of an equal copy of the only source, at any endpoint. This copy is read if the source
    /// fails (repeatable; only between two endpoints)
    #[arg(long, value_name = "URL", help_heading = "Selection options")]
    pub(crate) replica: Vec<OsString>,

    /// Succeed even if there is no file to copy or no file matches the patterns
    #[arg(long, help_heading = "Selection options")]
    pub(crate) allow_empty: bool,

    /// Show what would be done, without changing anything (as dray plan)
    #[arg(long, help_heading = "Copy options")]
    pub(crate) dry_run: bool,

    /// Between two endpoints: do not wait for the end of the transfer
    #[arg(long, help_heading = "Copy options")]
    pub(crate) detach: bool,

    /// Number of data connections to the other host, 1 to 256, or auto to tune this number during
    /// the copy (default: 4; between two endpoints: from the configuration of the endpoint that
    /// runs the transfer)
    #[arg(long, value_name = "N", value_parser = units::streams, help_heading = "Copy options")]
    pub(crate) streams: Option<StreamCount>,

    /// Maximum number of readers or writers of each storage target of this host, 1 to 64, or auto
    /// to measure the storage and tune this number during the copy (default: 4; writers of an
    /// XRootD server: 16)
    #[arg(long, value_name = "N", value_parser = units::threads, help_heading = "Copy options")]
    pub(crate) threads: Option<Threads>,

    /// Maximum rate per second: 30MiB, 1G; a number without a unit is bytes
    #[arg(long, value_name = "RATE", value_parser = units::rate, help_heading = "Copy options")]
    pub(crate) rate: Option<u64>,

    /// Order of objects: layout (by storage target, avoiding busy targets), file (one file after
    /// another) or random:SEED
    #[arg(long, value_name = "ORDER", default_value = "layout", value_parser = units::order,
          help_heading = "Copy options")]
    pub(crate) order: Order,

    /// Read each file back from the destination's storage before it gets its final name
    #[arg(long, help_heading = "Copy options")]
    pub(crate) verify: bool,

    /// Treatment of durable data of an earlier run: verify (read it back from the destination's
    /// storage and compare it) or trust (trust the log)
    #[arg(long, value_enum, default_value_t = Resume::Verify, help_heading = "Copy options")]
    pub(crate) resume: Resume,

    /// Record the listing of a source on this host in FILE. If the copy is interrupted, the same
    /// command with the same FILE lists only folders that are not in FILE or that have changed. FILE
    /// is not used after 24 hours
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "dry_run",
        help_heading = "Copy options"
    )]
    pub(crate) listing_checkpoint: Option<PathBuf>,

    /// Form of the object log at a destination on this host: MECHANISM:METHOD. The mechanisms are
    /// file (a log for each file), transaction (a log for four files; transaction/N for N files) and
    /// universal (one log); the methods are ranges, char, int, enc, binary, bit8 and bit64. The option
    /// :nosums omits the checksums, so a copy that resumes does not notice changed bytes; :async
    /// writes the log in a thread of its own (default: universal:ranges; a copy that resumes keeps
    /// the form of its log)
    #[arg(long, value_name = "FORM", value_parser = LogForm::from_str,
          help_heading = "Copy options")]
    pub(crate) log: Option<LogForm>,

    /// Copy extended attributes
    #[arg(long, help_heading = "Copy options")]
    pub(crate) xattrs: bool,

    /// Store the checksums of written files as extended attributes at the destination
    #[arg(long, help_heading = "Copy options")]
    pub(crate) checksum_attributes: bool,

    /// Id of the transfer: 1 to 64 of [A-Za-z0-9._:-] (default: derived from the command, and
    /// printed)
    #[arg(long, value_name = "ID", value_parser = transfer_id, help_heading = "Copy options")]
    pub(crate) transfer_id: Option<TransferId>,

    /// Memory for buffers, at least eight objects (--object-size) for each end on this host; two
    /// ends on this host share the memory
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = units::pool,
          help_heading = "Copy options")]
    pub(crate) pool: u64,

    /// Bypass the page cache of this host for large files, if the file system supports it
    #[arg(long, help_heading = "Copy options")]
    pub(crate) direct_io: bool,

    /// Allocate the space of large files at a destination on this host before their data is sent,
    /// if the file system supports it, so that a full file system is detected early
    #[arg(long, help_heading = "Copy options")]
    pub(crate) preallocate: bool,

    /// Stripes of new files at a destination on Lustre: source (the stripes of the source file;
    /// needs --xattrs), COUNT or COUNT:SIZE, for example 4:1MiB; the COUNT all means every object
    /// storage target
    #[arg(long, value_name = "STRIPES", value_parser = StripeChoice::from_str,
          help_heading = "Copy options")]
    pub(crate) stripe: Option<StripeChoice>,

    /// Share blocks with the original in a copy on one file system, if the file system supports it
    /// and no checksum is requested or stored
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        help_heading = "Copy options"
    )]
    pub(crate) reflink: Reflink,

    /// Limit a storage target of this host to a rate, to simulate slow targets (repeatable);
    /// `NAME=RATE,RATE@SECONDS...` changes the rate that many seconds after the first byte,
    /// `NAME=RATE,+SECONDS` delays each read or write
    #[arg(long, value_name = "NAME=RATE", value_parser = units::target_rate,
          help_heading = "Copy options")]
    pub(crate) limit_target: Vec<(String, RateInTime)>,

    #[command(flatten)]
    pub(crate) owed: Owed,

    #[command(flatten)]
    pub(crate) peer: Peer,

    #[command(flatten)]
    pub(crate) say: Say,
}

/// Options of the connection to the other host.
#[derive(Debug, Args)]
pub(crate) struct Peer {
    #[command(flatten)]
    pub(crate) who: Who,

    /// Local address to connect from (repeatable: data connections use them in turn)
    #[arg(long, value_name = "ADDR", help_heading = "Remote host options")]
    pub(crate) bind: Vec<std::net::IpAddr>,

    /// Send data without TLS, for trusted networks; connections still prove that they belong to the
    /// transfer, and control messages stay encrypted
    #[arg(long, help_heading = "Remote host options")]
    pub(crate) clear_data: bool,

    /// Maximum number of consecutive reconnections without new durable data; after the loss of a
    /// session that lasted at least one second and made data durable, reconnections in the first
    /// second do not count
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        help_heading = "Remote host options"
    )]
    pub(crate) retries: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Say {
    /// Progress on standard error: a bar on a terminal, else lines; or JSON lines
    #[arg(long, value_enum, default_value_t = Show::Auto, help_heading = "Output options")]
    pub(crate) progress: Show,

    /// Print only errors
    #[arg(short, long, help_heading = "Output options")]
    pub(crate) quiet: bool,

    /// Write the order of the sent objects to a file, as JSON lines
    #[arg(long, value_name = "FILE", help_heading = "Output options")]
    pub(crate) trace: Option<PathBuf>,

    /// Export spans of the copy to the collector of OpenTelemetry at this base URL, by OTLP over
    /// HTTP (default: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT; without
    /// them, nothing is exported)
    #[arg(long, value_name = "URL", help_heading = "Output options")]
    pub(crate) otlp: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Log {
    /// List the logs, one line each: form, transfer, last writer, and number of unfinished files
    List(LogArgs),
    /// Show the contents of logs: unfinished files, their durable bytes, and the last writer
    Show(LogArgs),
    /// Read the partial files and compare them with the logged checksums
    Verify(LogArgs),
    /// Explain which ranges of each unfinished file the next run trusts, which ranges it gets again,
    /// and why
    Explain(LogArgs),
    /// Print the contents of each log in the JSON form of the design page, one line each
    Export(LogArgs),
    /// Remove abandoned partial files and logs of interrupted copies below a folder
    #[command(visible_alias = "prune")]
    Sweep(SweepArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// A log, or a destination (folder or file) to search for logs
    #[arg(value_name = "LOG|DEST")]
    pub(crate) path: PathBuf,

    /// Search all folders below DEST as well
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = SWEEP_NOTES)]
pub(crate) struct SweepArgs {
    /// Folder to search with everything below it; links are not followed. Also the URL of a folder on
    /// several disks (disks:///DIR,/DIR//PATH) or in a pool of Ceph (rados://POOL/PATH)
    #[arg(value_name = "DIR")]
    pub(crate) path: PathBuf,

    /// Remove only data that has been untouched for this time: a number and s, m, h, d or w; at
    /// least an hour
    #[arg(long, value_name = "AGE", default_value = "30d", value_parser = units::age)]
    pub(crate) older_than: std::time::Duration,

    /// Show what would be removed, without removing anything
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print one JSON object per line: each removal, then the sum
    #[arg(long)]
    pub(crate) json: bool,
}

fn transfer_id(text: &str) -> Result<TransferId, String> {
    TransferId::new(text).map_err(|error| error.cause)
}

/// Parses the id of a transfer at an endpoint. Some ids are refused, because the API uses them in
/// its paths.
fn id_there(text: &str) -> Result<TransferId, String> {
    match transfer_id(text)? {
        id if reserved_id(id.as_str()) => {
            Err("the id is a reserved word, so no transfer of an endpoint has this id".to_owned())
        }
        id => Ok(id),
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, Dray, Log};
    use clap::{CommandFactory, Parser};
    use std::time::Duration;

    #[test]
    fn the_command_line_is_consistent() {
        Dray::command().debug_assert();
    }

    #[test]
    fn prune_is_a_second_name_of_sweep() {
        for name in ["prune", "sweep"] {
            let line = format!("dray log {name} /data --older-than 2d --dry-run --json");
            let words = line.split_whitespace();
            let Command::Log(Log::Sweep(parsed)) = Dray::parse_from(words).command else {
                panic!("{name} is another command");
            };
            assert_eq!(parsed.older_than, Duration::from_secs(2 * 86_400));
            assert!(parsed.dry_run && parsed.json);
        }
    }
}
