//! `dray log`: lists, prints, explains and exports object logs, and compares partial files with
//! them. These commands change no file and take no lease. Only `dray log sweep` removes data.

mod explain;
mod export;

use crate::args::{Log, LogArgs};
use crate::exit::{Exit, Stop, usage};
use crate::output;
use crate::units::{count, human};
use dray_core::checksum::Summer;
use dray_core::path::escape;
use dray_core::{ByteRange, End, Error, ErrorKind, Name, RelPath, Result, Sums};
use dray_log::{LoggedFile, Recovery, layout, recover};
use dray_open::locations::{own_path, shown};
use dray_runtime::sink::StoredLog;
use dray_runtime::sweep;
use dray_store::{
    ControlMode, LinkScope, PosixOptions, PosixStore, ReadExt, ReadHandle, ReadPurpose, Store,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Number of bytes that `verify` reads at a time.
const PIECE: usize = 1 << 20;

/// Runs `dray log`.
pub(crate) fn run(log: &Log) -> Result<Exit, Stop> {
    let (arguments, action) = match log {
        Log::List(arguments) => (arguments, Action::List),
        Log::Show(arguments) => (arguments, Action::Show),
        Log::Verify(arguments) => (arguments, Action::Verify),
        Log::Explain(arguments) => (arguments, Action::Explain),
        Log::Export(arguments) => (arguments, Action::Export),
        Log::Sweep(arguments) => return crate::sweep::run(arguments),
    };
    let is_json = arguments.json || action == Action::Export;
    let (mut found, mut unreadable) = find(&arguments.path)?;
    if arguments.recursive {
        find_below(&arguments.path, &mut found, &mut unreadable)?;
    }
    for log in &unreadable {
        crate::output::complain(&log.error);
    }
    if found.is_empty() && unreadable.is_empty() && !is_json {
        output::result(match arguments.path.exists() {
            true if arguments.path.is_dir() && !arguments.recursive => {
                "no object log: nothing is unfinished in this folder (--recursive searches \
                    subfolders too)"
            }
            true => "no object log was found: nothing is unfinished at the given location",
            false => {
                "no object log was found: nothing is unfinished, because the given path does not \
                    exist"
            }
        });
    }
    let mut logs = Vec::new();
    let mut checked = Checked::default();
    for log in &found {
        let object = match action {
            Action::List => list(log, arguments.json),
            Action::Explain => explain::explain(log, arguments.json)?,
            Action::Export => {
                output::result(&export::log(&log.recovery).to_string());
                continue;
            }
            Action::Show | Action::Verify => tell(
                log,
                arguments,
                (action == Action::Verify).then_some(&mut checked),
            ),
        };
        logs.push(object);
    }
    let bad = checked.bad;
    if arguments.json && action != Action::Export {
        let unreadable: Vec<_> = unreadable.iter().map(Unreadable::in_json).collect();
        let mut object = json!({"logs": logs, "unreadable": unreadable});
        if action == Action::Verify {
            object["mismatches"] = json!(bad);
            object["files_without_sums"] = json!(checked.files_without_sums);
        }
        output::result(&object.to_string());
    } else if action == Action::Verify && !found.is_empty() && bad == 0 && unreadable.is_empty() {
        output::result(match checked.files_without_sums {
            0 => "all logged ranges are present and match their checksums",
            _ => {
                "all logged ranges are present; those of logs without sums (:nosums) have no \
                    checksums to compare"
            }
        });
    }
    Ok(match (unreadable.is_empty(), bad) {
        (false, _) => Exit::Refused,
        (true, 0) => Exit::Safe,
        (true, _) => Exit::SomeFailed,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    List,
    Show,
    Verify,
    Explain,
    Export,
}

/// Results of `verify`.
#[derive(Default)]
struct Checked {
    /// Number of mismatches.
    bad: u64,
    /// Number of files whose ranges have no checksums in the log.
    files_without_sums: u64,
}

/// A log, and the destination folder that the log describes.
struct FoundLog {
    path: PathBuf,
    store: Arc<dyn Store>,
    recovery: Recovery,
    /// The path that the user has named, relative to the destination folder.
    wanted: RelPath,
}

/// A log that cannot be read, or a folder that cannot be searched for logs.
struct Unreadable {
    /// Path of the log; `None` for a folder.
    path: Option<PathBuf>,
    error: Error,
}

impl Unreadable {
    fn new(top: &Path, name: &Name, error: Error) -> Self {
        let folder = top.join(OsStr::from_bytes(layout::LOG_FOLDER));
        Self {
            path: Some(folder.join(OsStr::from_bytes(name.as_bytes()))),
            error,
        }
    }

    fn in_json(&self) -> Value {
        let mut object = crate::report::in_json(&self.error);
        object["path"] = json!(self.path.as_deref().map(shown));
        object
    }
}

/// Finds the logs for `path`, which is the path of a log or of a destination. For a destination,
/// reads the logs in the destination and in all folders above the destination. The second list of
/// the result contains an error for each log that cannot be read.
fn find(path: &Path) -> Result<(Vec<FoundLog>, Vec<Unreadable>)> {
    let path = own_path(path.as_os_str())?;
    let path = Path::new(&*path);
    let words = shown(path);
    let full = std::path::absolute(path).map_err(|error| {
        usage(
            format!("{words}: {error}"),
            "give the path of a log or of a \
            destination",
        )
    })?;
    if let (Some(top), Some(name)) = (top_of_log(&full), full.file_name()) {
        let name = Name::new(name.as_bytes())?;
        return Ok(match read(top, &name, RelPath::root()) {
            Ok(found) => (found.into_iter().collect(), Vec::new()),
            Err(error) => (Vec::new(), vec![Unreadable::new(top, &name, error)]),
        });
    }
    // The path of a copied file may not exist yet, but its folder does.
    let real = full.canonicalize().unwrap_or(full);
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for top in real.ancestors().filter(|top| top.is_dir()) {
        let Ok(below) = real.strip_prefix(top) else {
            continue;
        };
        let wanted = RelPath::parse(below.as_os_str().as_bytes())?;
        let names = match open(top)?.list_control(&log_folder()?) {
            Ok(names) => names,
            Err(error) if error.kind == ErrorKind::PermissionDenied => continue,
            Err(error) => return Err(error),
        };
        for name in names
            .iter()
            .filter(|name| layout::lease_of_log(name).is_some())
        {
            match read(top, name, wanted.clone()) {
                Ok(read) => found.extend(read.filter(FoundLog::is_about_it)),
                Err(error) => unreadable.push(Unreadable::new(top, name, error)),
            }
        }
    }
    if found.is_empty()
        && unreadable.is_empty()
        && real.parent().is_none_or(|above| !above.is_dir())
    {
        return Err(usage(
            format!("{words} does not exist"),
            "give the path of a log or of a destination",
        ));
    }
    Ok((found, unreadable))
}

/// Finds the logs in all folders below the folder `path`. A log is in the destination folder of its
/// copy, so the log of an earlier copy to a subfolder is in that subfolder.
fn find_below(
    path: &Path,
    found: &mut Vec<FoundLog>,
    unreadable: &mut Vec<Unreadable>,
) -> Result<()> {
    let Ok(top) = path.canonicalize() else {
        return Ok(());
    };
    if !top.is_dir() {
        return Ok(());
    }
    let place = sweep::WalkRoot::open(&top)?;
    // No partial file is older than the epoch, so the walk reports only logs.
    sweep::walk(&place, SystemTime::UNIX_EPOCH, &mut |met| {
        let log = match met {
            sweep::WalkEvent::PartialData(found) if found.what == sweep::PartialKind::Log => {
                found.path
            }
            sweep::WalkEvent::Unreadable(error) => {
                unreadable.push(Unreadable { path: None, error });
                return ControlFlow::Continue(());
            }
            sweep::WalkEvent::Folder
            | sweep::WalkEvent::PartialData(_)
            | sweep::WalkEvent::Young(_) => {
                return ControlFlow::Continue(());
            }
        };
        let at = top.join(OsStr::from_bytes(log.as_bytes()));
        let (Some(folder), Some(name)) = (top_of_log(&at), log.name()) else {
            return ControlFlow::Continue(());
        };
        // Skip the logs in the top folder, because `find` has already read them.
        if folder != top {
            match read(folder, &name, RelPath::root()) {
                Ok(read) => found.extend(read),
                Err(error) => unreadable.push(Unreadable::new(folder, &name, error)),
            }
        }
        ControlFlow::Continue(())
    })
}

/// Returns the destination folder of a log: `TOP` for `TOP/.dray-log/X.log`.
fn top_of_log(path: &Path) -> Option<&Path> {
    let folder = path.parent()?;
    let is_log = folder.file_name()? == OsStr::from_bytes(layout::LOG_FOLDER)
        && path.extension()? == OsStr::new("log");
    is_log.then(|| folder.parent()).flatten()
}

fn log_folder() -> Result<RelPath> {
    RelPath::root().join(&layout::log_folder_name()?)
}

fn open(top: &Path) -> Result<PosixStore> {
    PosixStore::open(
        top,
        End::Sink,
        PosixOptions {
            links: LinkScope::Never,
            ..PosixOptions::default()
        },
    )
}

fn read(top: &Path, name: &Name, wanted: RelPath) -> Result<Option<FoundLog>> {
    let store: Arc<dyn Store> = Arc::new(open(top)?);
    let at = log_folder()?.join(name)?;
    let file = store.open_control(&at, ControlMode::ReadOnly)?;
    let path = top.join(OsStr::from_bytes(at.as_bytes()));
    let recovery = recover(&mut StoredLog::new(file, &store, &at)).map_err(|error| {
        let cause = format!("{}: {}", shown(&path), error.cause);
        error.cause(cause)
    })?;
    Ok(recovery.map(|recovery| FoundLog {
        path,
        store,
        recovery,
        wanted,
    }))
}

impl FoundLog {
    /// Returns true if the log covers the wanted path, a path below the wanted path, or a folder
    /// above the wanted path.
    fn is_about_it(&self) -> bool {
        let claims = &self.recovery.header.claims;
        layout::covers(claims, &self.wanted)
            || claims.iter().any(|claim| claim.starts_with(&self.wanted))
    }

    fn files(&self) -> impl Iterator<Item = (&RelPath, &LoggedFile)> {
        let files = self.recovery.files.iter();
        files.filter(|(path, _)| path.starts_with(&self.wanted))
    }

    /// Compares a partial file with its log. Returns the mismatches.
    fn verify(&self, path: &RelPath, file: &LoggedFile) -> Vec<Error> {
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let opened = folder
            .join(&file.partial.name)
            .and_then(|partial| self.store.open_read(&partial, ReadPurpose::ReadBack));
        let handle = match opened {
            Ok(handle) => handle,
            Err(error) => return vec![error.file(path)],
        };
        let has_sums = self.recovery.header.form.has_sums;
        let check = |(range, sums): (ByteRange, Sums)| {
            compare(handle.as_ref(), range, has_sums.then_some(sums))
        };
        let wrong = file.done.iter().filter_map(check);
        wrong.map(|error| error.file(path)).collect()
    }
}

/// Reads a range, and compares it with its checksums in the log. Without checksums, the range must
/// only exist.
fn compare(handle: &dyn ReadHandle, range: ByteRange, logged: Option<Sums>) -> Option<Error> {
    let mut summer = Summer::new();
    let mut piece = vec![0; PIECE];
    let mut at = range.offset;
    while at < range.end() {
        let want = usize::try_from(range.end() - at)
            .unwrap_or(PIECE)
            .min(PIECE);
        match handle.read_full_at(at, &mut piece[..want]) {
            Ok(0) => break,
            Ok(got) => {
                summer.update(&piece[..got]);
                at += got as u64;
            }
            Err(error) => return Some(error),
        }
    }
    let found = summer.finish();
    let is_short = at < range.end();
    (is_short || logged.is_some_and(|logged| logged != found)).then(|| {
        let (start, end) = (range.offset, range.end());
        let cause = match logged {
            Some(logged) if !is_short => format!(
                "bytes {start} to {end}: logged crc32c:{:08x}, found crc32c:{:08x}",
                logged.crc32c, found.crc32c
            ),
            _ => format!("bytes {start} to {end}: the partial file ends at byte {at}"),
        };
        Error::new(
            ErrorKind::ChecksumMismatch,
            End::Sink,
            "verify the partial file",
        )
        .cause(cause)
        .remedy("check the storage device; remove the partial file to have the file sent again")
    })
}

/// Prints one line about a log. Returns its JSON form.
fn list(found: &FoundLog, is_json: bool) -> Value {
    let recovery = &found.recovery;
    if !is_json {
        output::result(&format!(
            "{}  {}  transfer {}  epoch {}  {}  {} safe",
            shown(&found.path),
            recovery.header.form,
            recovery.tenure.transfer,
            recovery.tenure.epoch,
            count(recovery.files.len() as u64, "unfinished file"),
            human(recovery.files.values().map(|file| file.done.bytes()).sum()),
        ));
    }
    let mut object = log_json(found, Vec::new());
    object["files"] = json!(recovery.files.len());
    object
}

/// Prints a log. Returns its JSON form. Compares the partial files with the log if `verify` is set.
fn tell(found: &FoundLog, arguments: &LogArgs, verify: Option<&mut Checked>) -> Value {
    let is_verified = verify.is_some();
    if !arguments.json {
        for line in head(found) {
            output::result(&line);
        }
    }
    let mut checked = Checked::default();
    let mut files = Vec::new();
    for (path, file) in found.files() {
        let errors = match is_verified {
            true => found.verify(path, file),
            false => Vec::new(),
        };
        checked.bad += errors.len() as u64;
        checked.files_without_sums += u64::from(!found.recovery.header.form.has_sums);
        for error in &errors {
            crate::output::complain(error);
        }
        if arguments.json {
            let mut object = file_json(path, file, found.recovery.header.form.has_sums);
            if is_verified {
                object["mismatches"] = errors.iter().map(crate::report::in_json).collect();
            }
            files.push(object);
        } else {
            output::result(&format!(
                "  {path}: {} of {} safe in {}, object size {}{}",
                human(file.done.bytes()),
                human(file.key.size),
                file.partial.name,
                human(file.object_bytes.get()),
                match (file.is_weak, file.is_doubtful) {
                    (_, true) => ", doubtful after a failed write",
                    (true, false) => ", not synced",
                    (false, false) => "",
                },
            ));
        }
    }
    if let Some(all) = verify {
        all.bad += checked.bad;
        all.files_without_sums += checked.files_without_sums;
    }
    log_json(found, files)
}

fn head(found: &FoundLog) -> Vec<String> {
    let recovery = &found.recovery;
    let tenure = &recovery.tenure;
    let claims = recovery.header.claims.iter().map(ToString::to_string);
    let claims: Vec<String> = claims.collect();
    let form = recovery.header.form;
    let mut lines = vec![
        shown(&found.path),
        format!(
            "  form {form}: mechanism {}, method {}, {}, {}",
            form.mechanism_words(),
            form.method.word(),
            match form.is_async {
                true => "written by a thread of its own",
                false => "written synchronously",
            },
            match form.has_sums {
                true => "with checksums",
                false => "without checksums",
            },
        ),
        format!(
            "  covers {}; owner {}; {} bytes",
            match claims.is_empty() {
                true => "the whole destination folder".to_owned(),
                false => claims.join(", "),
            },
            escape(&recovery.header.owner),
            recovery.log_bytes(),
        ),
        format!(
            "  lease last held by transfer {} ({}), epoch {}, {} unfinished",
            tenure.transfer,
            tenure.holder,
            tenure.epoch,
            count(recovery.files.len() as u64, "file"),
        ),
    ];
    if recovery.torn_bytes > 0 {
        let torn = recovery.torn_bytes;
        lines.push(format!(
            "  the last {torn} bytes of the log are ignored, because their write was not completed"
        ));
    }
    if let Some(damage) = &recovery.damage {
        lines.push(format!("  {}", damage.error("it")));
    }
    lines
}

fn log_json(found: &FoundLog, files: Vec<Value>) -> Value {
    let recovery = &found.recovery;
    let tenure = &recovery.tenure;
    let claims = recovery.header.claims.iter().map(ToString::to_string);
    let form = recovery.header.form;
    json!({
        "path": shown(&found.path),
        "form": form.to_string(),
        "mechanism": form.mechanism_words(),
        "method": form.method.word(),
        "async": form.is_async,
        "sums": form.has_sums,
        "claims": claims.collect::<Vec<_>>(),
        "owner": escape(&recovery.header.owner),
        "software": recovery.header.software,
        "transfer_id": tenure.transfer.as_str(),
        "holder": tenure.holder,
        "epoch": tenure.epoch,
        "durability": tenure.durability,
        "log_bytes": recovery.log_bytes(),
        "torn_bytes": recovery.torn_bytes,
        "damage": recovery.damage.as_ref().map(|damage| damage.error("the log").to_string()),
        "files": files,
    })
}

fn file_json(path: &RelPath, file: &LoggedFile, has_sums: bool) -> Value {
    let range = |(range, sums): (ByteRange, Sums)| match has_sums {
        true => json!({
            "offset": range.offset,
            "length": range.length,
            "crc32c": format!("{:08x}", sums.crc32c),
            "adler32": format!("{:08x}", sums.adler32),
        }),
        false => json!({"offset": range.offset, "length": range.length}),
    };
    json!({
        "path": path.to_string(),
        "bytes": file.key.size,
        "bytes_safe": file.done.bytes(),
        "object_bytes": file.object_bytes.get(),
        "partial": file.partial.name.to_string(),
        "synced": !file.is_weak,
        "doubtful": file.is_doubtful,
        "safe": file.done.iter().map(range).collect::<Vec<_>>(),
    })
}
