//! The command line: what can be asked, and the words of the help.

mod endpoint;
mod serve;

pub(crate) use endpoint::{
    Algorithm, Ask, At, Cancel, Class, Endpoint, Init, Mint, Owed, Rm, RunEndpoint, ShowToken,
    ShowTransfer, Status, Sum, Token, Top, Transfers, Who,
};
pub(crate) use serve::Serve;

use crate::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use dray_api::reserved_id;
use dray_core::options::{self, Order};
use dray_core::{ByteRange, Checksum, TransferId};
use dray_open::locations::{Places, Written};
use dray_open::prepare::RateInTime;
use dray_runtime::assembly::{Content, Threads};
use dray_runtime::drive::StreamCount;
use dray_wire::message::Selection;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  everything asked for is safe at the destination
  1  some files failed (each is named), or the output could not be written; the others are safe
  2  the command line makes no sense
  3  refused before anything moved: another transfer writes there, wrong key or token, no permission,
     nothing to copy
  4  the other end cannot be reached
  5  broken off; what is safe stays safe: the same command goes on from there";

const CP_EXAMPLES: &str = "\
Examples:
  dray cp big.root /data/new-name.root          one file, under a new name
  dray cp big.root /data/                       one file, into a folder
  dray cp -r run42 /data                        makes /data/run42
  dray cp -r run42/ /data                       the contents of run42, into /data
  dray cp -r run42 dray://dtn2.example/in \\
      --peer-key sha256:... --token-file t      push to another host (see dray serve)
  dray cp -r dray://dtn2.example/run42 /data    pull from one (DRAY_PEER_KEY, DRAY_TOKEN set)
  dray cp -r dray://dtn1.example/data/run42 \\
      dray://dtn2.example/data/                 from endpoint to endpoint, with or without this host
  dray cp https://www.example/big.root /data/   from a web server; folders where it speaks WebDAV
  dray cp root://server.example//d/f /data/     from an XRootD server (make build-xrootd)
  dray cp -r run42 root://server.example//d/    to one
  dray cp --range 1GiB:64MiB big.root part      64 MiB of it
  dray cp null:4GiB null:                       no storage at either end, to measure the rest

What DST means never depends on what exists there: it is a folder with -r, with several sources, or
when it ends in a slash (or is . or ..); otherwise it is the file's new name.
Run the same command again after any fault: what is safe is not sent again.";

const SWEEP_NOTES: &str = "\
Whole files are never touched, and neither is what a running copy holds. What a copy has left that
is broken off and may still go on is removed too, if it is old enough: the same copy then begins
anew. Logs that cannot be read are named and stay.";

/// Hauls files between folders and hosts: object by object, verified, resumable.
#[derive(Debug, Parser)]
#[command(name = "dray", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Dray {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copies files and folders
    Cp(Box<Cp>),
    /// Serves copies beneath one folder to other hosts
    Serve(Serve),
    /// Runs and asks endpoints: services that carry transfers
    #[command(subcommand)]
    Endpoint(Endpoint),
    /// Makes and shows bearer tokens
    #[command(subcommand)]
    Token(Token),
    /// Lists an endpoint's transfers
    Transfers(Transfers),
    /// Shows one transfer of an endpoint
    Show(ShowTransfer),
    /// Shows what an endpoint moves, for whom, and which deadlines it keeps
    Top(Top),
    /// Cancels a transfer of an endpoint
    Cancel(Cancel),
    /// Lists a folder at an endpoint; without a path (dray://HOST) its roots
    Ls(At),
    /// Says what a path at an endpoint is
    Stat(At),
    /// Removes a file or folder at an endpoint
    Rm(Rm),
    /// Says the checksum of a file at an endpoint
    Checksum(Sum),
    /// Says what a copy would do, and changes nothing
    Plan(Box<Plan>),
    /// Looks into object logs: what is safe of unfinished copies
    #[command(subcommand)]
    Log(Log),
    /// Prints the version
    Version,
    /// Prints a completion script for a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Prints the command line reference as Markdown
    #[command(hide = true)]
    DocsCli,
}

impl Command {
    /// True if standard output carries JSON alone, errors included.
    pub(crate) const fn is_json(&self) -> bool {
        match self {
            Self::Cp(cp) => cp.what.json,
            Self::Plan(plan) => plan.what.json,
            Self::Transfers(list) => list.ask.json,
            Self::Show(show) => show.ask.json,
            Self::Top(top) => top.ask.json,
            Self::Cancel(cancel) => cancel.ask.json,
            Self::Ls(at) | Self::Stat(at) => at.ask.json,
            Self::Rm(rm) => rm.at.ask.json,
            Self::Checksum(sum) => sum.at.ask.json,
            Self::Log(Log::Show(log) | Log::Verify(log)) => log.json,
            Self::Log(Log::Sweep(sweep)) => sweep.json,
            _ => false,
        }
    }
}

/// What is copied where: the same for `cp` and `plan`.
#[derive(Debug, Args)]
pub(crate) struct What {
    /// What to copy, then where to. Either side, or both, may be dray://HOST[:PORT]/PATH
    #[arg(value_name = "SRC... DST", required = true, num_args = 2..)]
    pub(crate) paths: Vec<OsString>,

    /// Copy folders with everything in them; DST is a folder then
    #[arg(short, long, help_heading = "What to copy")]
    pub(crate) recursive: bool,

    /// Take only files that match (repeatable): '*.root' by name, 'run?/**' by path
    #[arg(long, value_name = "PATTERN", help_heading = "What to copy")]
    pub(crate) include: Vec<String>,

    /// Leave out files and folders that match (repeatable)
    #[arg(long, value_name = "PATTERN", help_heading = "What to copy")]
    pub(crate) exclude: Vec<String>,

    /// Only LENGTH bytes from OFFSET of one file, which becomes a file of LENGTH bytes
    #[arg(long, value_name = "OFFSET:LENGTH", value_parser = units::range,
          help_heading = "What to copy")]
    pub(crate) range: Option<ByteRange>,

    /// Symbolic links: keep them as links, follow them, or refuse (fail) them
    #[arg(long, value_enum, default_value_t = Links::Keep, help_heading = "What to copy")]
    pub(crate) links: Links,

    /// Files that exist: leave them, replace those of another size, time or known checksum, or
    /// replace all
    #[arg(long, value_enum, default_value_t = Overwrite::IfDifferent,
          help_heading = "What to copy")]
    pub(crate) overwrite: Overwrite,

    /// The checksum the one file must have: adler32:HHHHHHHH or crc32c:HHHHHHHH
    #[arg(long, value_name = "SUM", value_parser = units::checksum,
          help_heading = "What to copy")]
    pub(crate) checksum: Option<Checksum>,

    /// When bytes count as safe: written, file on stable storage before its final name, or each
    /// object on its own
    #[arg(long, value_enum, default_value_t = Durability::File, help_heading = "How to copy")]
    pub(crate) durability: Durability,

    /// Bytes of an object, the unit of transfer: 4KiB to 64MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = units::object_size,
          help_heading = "How to copy")]
    pub(crate) object_size: u64,

    /// The storage target that a local folder lies on (repeatable; default: its device)
    #[arg(long, value_name = "DIR=NAME", help_heading = "How to copy")]
    pub(crate) target: Vec<OsString>,

    /// End with one JSON object on standard output
    #[arg(long, help_heading = "What to say")]
    pub(crate) json: bool,
}

impl What {
    /// Those options of both ends that decide what becomes of a file.
    pub(crate) fn options(&self) -> options::Options {
        options::Options {
            durability: self.durability.into(),
            overwrite: self.overwrite.into(),
            object_bytes: self.object_size,
            ..options::Options::default()
        }
    }

    /// Which entries are taken.
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

    /// What the one file must be.
    pub(crate) fn content(&self) -> Content {
        Content {
            demanded: self.checksum,
            range: self.range,
            ..Content::default()
        }
    }

    /// What the paths mean.
    pub(crate) fn places(&self) -> dray_core::Result<Places> {
        // Clap asks for two paths at least.
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
    /// Whether the copy may take the blocks of its original. Where sums are promised it is written: they
    /// are of what was read.
    pub(crate) fn may_share_blocks(&self) -> bool {
        let promised = self.checksum_attributes || self.what.checksum.is_some();
        self.reflink == Reflink::Auto && !promised
    }

    /// Options of both ends.
    pub(crate) fn options(&self) -> options::Options {
        options::Options {
            order: self.order,
            verify: self.verify,
            resume: self.resume.into(),
            xattrs: self.xattrs,
            checksum_attributes: self.checksum_attributes,
            rate: self.rate,
            ..self.what.options()
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = CP_EXAMPLES, override_usage = "dray cp [OPTIONS] SRC... DST")]
pub(crate) struct Cp {
    #[command(flatten)]
    pub(crate) what: What,

    /// An equal copy of the one source at any endpoint, read when the source fails (repeatable; only
    /// if neither side is this host)
    #[arg(long, value_name = "URL", help_heading = "What to copy")]
    pub(crate) replica: Vec<OsString>,

    /// Do not fail when there is no file to copy, or when the patterns match none
    #[arg(long, help_heading = "What to copy")]
    pub(crate) allow_empty: bool,

    /// Say what would be done, and change nothing (as dray plan)
    #[arg(long, help_heading = "How to copy")]
    pub(crate) dry_run: bool,

    /// Between two other hosts: do not wait for the transfer's end
    #[arg(long, help_heading = "How to copy")]
    pub(crate) detach: bool,

    /// Data connections to the other host, 1 to 256, 4 unless it is said; auto: found while it runs.
    /// Between two other hosts: as the endpoint that drives has it, unless it is said
    #[arg(long, value_name = "N", value_parser = units::streams, help_heading = "How to copy")]
    pub(crate) streams: Option<StreamCount>,

    /// Readers, or writers, of each storage target of this host at the most, 1 to 64, 4 unless it is said
    /// (writers of an XRootD server: 16); auto: found while it runs, by what this host sees
    #[arg(long, value_name = "N", value_parser = units::threads, help_heading = "How to copy")]
    pub(crate) threads: Option<Threads>,

    /// At most so much per second: 30MiB, 1G; a number alone is bytes
    #[arg(long, value_name = "RATE", value_parser = units::rate, help_heading = "How to copy")]
    pub(crate) rate: Option<u64>,

    /// Which object goes next: by storage target around busy ones, file after file, or random:SEED
    #[arg(long, value_name = "ORDER", default_value = "layout", value_parser = units::order,
          help_heading = "How to copy")]
    pub(crate) order: Order,

    /// Read every file back from the destination's storage before it gets its name
    #[arg(long, help_heading = "How to copy")]
    pub(crate) verify: bool,

    /// Durable bytes of an earlier run: read them back from the destination's storage and compare them,
    /// or trust the log
    #[arg(long, value_enum, default_value_t = Resume::Verify, help_heading = "How to copy")]
    pub(crate) resume: Resume,

    /// Carry extended attributes
    #[arg(long, help_heading = "How to copy")]
    pub(crate) xattrs: bool,

    /// Keep the checksums of written files as extended attributes at the destination
    #[arg(long, help_heading = "How to copy")]
    pub(crate) checksum_attributes: bool,

    /// Name of the transfer: 1 to 64 of [A-Za-z0-9._:-] (default: derived from the command; printed)
    #[arg(long, value_name = "ID", value_parser = transfer_id, help_heading = "How to copy")]
    pub(crate) transfer_id: Option<TransferId>,

    /// Memory for buffers, but at least eight objects (--object-size) for each end that is here; a copy on
    /// one host shares it between its ends
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = units::pool,
          help_heading = "How to copy")]
    pub(crate) pool: u64,

    /// Read and write large files of this host past its page cache, where the file system lets that
    #[arg(long, help_heading = "How to copy")]
    pub(crate) direct_io: bool,

    /// Take the space of large files at a destination on this host when they begin, where the file
    /// system can do that: a full storage is known before the bytes travel
    #[arg(long, help_heading = "How to copy")]
    pub(crate) preallocate: bool,

    /// Whether a copy on one file system shares its blocks with the original until one of them is
    /// changed, where the file system can do that and no checksum is asked for or kept
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        help_heading = "How to copy"
    )]
    pub(crate) reflink: Reflink,

    /// Limit a storage target of this host to a rate, to try out slow targets (repeatable);
    /// `NAME=RATE,RATE@SECONDS...` changes it so long after the first byte, `NAME=RATE,+SECONDS` has each
    /// read or write wait so long besides
    #[arg(long, value_name = "NAME=RATE", value_parser = units::target_rate,
          help_heading = "How to copy")]
    pub(crate) limit_target: Vec<(String, RateInTime)>,

    #[command(flatten)]
    pub(crate) owed: Owed,

    #[command(flatten)]
    pub(crate) peer: Peer,

    #[command(flatten)]
    pub(crate) say: Say,
}

/// The other host.
#[derive(Debug, Args)]
pub(crate) struct Peer {
    #[command(flatten)]
    pub(crate) who: Who,

    /// Address of this host to connect from (repeatable: data connections take turns)
    #[arg(long, value_name = "ADDR", help_heading = "The other host")]
    pub(crate) bind: Vec<std::net::IpAddr>,

    /// Send data without TLS on trusted networks; connections still prove that they belong to the
    /// transfer, and control messages stay encrypted
    #[arg(long, help_heading = "The other host")]
    pub(crate) clear_data: bool,

    /// Times in a row to connect again after a lost connection, without anything new being safe
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        help_heading = "The other host"
    )]
    pub(crate) retries: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Say {
    /// What to show meanwhile, on standard error: a bar on a terminal, else lines; or JSON lines
    #[arg(long, value_enum, default_value_t = Show::Auto, help_heading = "What to say")]
    pub(crate) progress: Show,

    /// Say nothing but errors
    #[arg(short, long, help_heading = "What to say")]
    pub(crate) quiet: bool,

    /// Write the order in which objects go out as JSON lines
    #[arg(long, value_name = "FILE", help_heading = "What to say")]
    pub(crate) trace: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(override_usage = "dray plan [OPTIONS] SRC... DST")]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) what: What,

    #[command(flatten)]
    pub(crate) owed: Owed,

    #[command(flatten)]
    pub(crate) who: Who,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Log {
    /// Says what logs hold: which unfinished files, how much of each is safe, who wrote
    Show(LogArgs),
    /// Reads the partial files and compares them with the logged checksums
    Verify(LogArgs),
    /// Removes what broken-off copies have left beneath a folder and nobody goes on with
    Sweep(SweepArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// A log, or a destination (folder or file) whose logs are looked for
    #[arg(value_name = "LOG|DEST")]
    pub(crate) path: PathBuf,

    /// Look for logs in all folders below DEST as well
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Answer with one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = SWEEP_NOTES)]
pub(crate) struct SweepArgs {
    /// The folder; what lies below it is looked through, no link is followed
    #[arg(value_name = "DIR")]
    pub(crate) path: PathBuf,

    /// Only what nobody has touched for so long: a number and s, m, h, d or w; an hour at least
    #[arg(long, value_name = "AGE", default_value = "30d", value_parser = units::age)]
    pub(crate) older_than: std::time::Duration,

    /// Say what would go, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Answer with one JSON object a line: each removal, then the sum
    #[arg(long)]
    pub(crate) json: bool,
}

/// See [`options::Links`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Links {
    Keep,
    Follow,
    Refuse,
}

/// See [`options::Overwrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Overwrite {
    Never,
    IfDifferent,
    Always,
}

/// See [`options::ResumeMode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resume {
    Verify,
    Trust,
}

impl From<Resume> for options::ResumeMode {
    fn from(resume: Resume) -> Self {
        match resume {
            Resume::Verify => Self::Verify,
            Resume::Trust => Self::Trust,
        }
    }
}

/// As `cp --reflink` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reflink {
    Auto,
    Never,
}

/// See [`options::Durability`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    None,
    File,
    Object,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Show {
    Auto,
    Bar,
    Lines,
    Json,
    None,
}

impl From<Links> for options::Links {
    fn from(links: Links) -> Self {
        match links {
            Links::Keep => Self::Keep,
            Links::Follow => Self::Follow,
            Links::Refuse => Self::Refuse,
        }
    }
}

impl From<Overwrite> for options::Overwrite {
    fn from(overwrite: Overwrite) -> Self {
        match overwrite {
            Overwrite::Never => Self::Never,
            Overwrite::IfDifferent => Self::IfDifferent,
            Overwrite::Always => Self::Always,
        }
    }
}

impl From<Durability> for options::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::None => Self::None,
            Durability::File => Self::File,
            Durability::Object => Self::Object,
        }
    }
}

fn transfer_id(text: &str) -> Result<TransferId, String> {
    TransferId::new(text).map_err(|error| error.cause)
}

/// The id of a transfer of an endpoint, some of which are words of its API's paths.
fn id_there(text: &str) -> Result<TransferId, String> {
    match transfer_id(text)? {
        id if reserved_id(id.as_str()) => Err("no transfer of an endpoint has this id".to_owned()),
        id => Ok(id),
    }
}

#[cfg(test)]
mod tests {
    use super::Dray;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Dray::command().debug_assert();
    }
}
