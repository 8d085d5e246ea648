//! Finds logs by their claims, and examines leases.
//!
//! The module `neighbours` finds the logs in which a file is open.

use super::lease::{HOLDER_PAUSE, held, is_at_work, read_lease};
use super::log_file::StoredLog;
use super::log_place::{LogPlace, folders_above, log_folder, own_place, reachable};
use super::request::DestinationRequest;
use dray_core::{Error, ErrorKind, Name, RelPath, Result};
use dray_log::layout;
use dray_log::neighbours::Follower;
use dray_store::{ControlFile, ControlMode, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kind of operation on a log or a lease that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStep {
    /// The log was read, created or written.
    Use,
    /// The log was removed.
    Remove,
}

/// Replaces the path of a log or a lease in an error by the folder `words`, which the user knows.
/// Other errors stay unchanged.
#[must_use]
pub fn about_folder(error: Error, words: &str, step: LogStep) -> Error {
    let is_own = |path: &RelPath| path.components().any(|name| name.is_reserved());
    if !error.file.as_ref().is_some_and(is_own) {
        return error;
    }
    let (operation, mut cause) = match step {
        LogStep::Remove => ("remove the log of unfinished copies", words.to_owned()),
        LogStep::Use => (
            "write to the destination",
            format!("{words} contains the log of unfinished copies"),
        ),
    };
    // The user needs the name of the log file to examine it.
    if let (ErrorKind::LogVersion | ErrorKind::LogDamaged, Some(file)) = (error.kind, &error.file) {
        cause = format!("{cause}: {file}");
    }
    let cause = match error.cause.as_str() {
        "" => cause,
        why => format!("{cause}: {why}"),
    };
    Error {
        operation: operation.to_owned(),
        file: None,
        ..error.cause(cause)
    }
}

/// Finds a log of any transfer whose claims cover the claims of the request. Searches the
/// destination folder first, then the folders above it up to the root.
pub(super) fn find_covering(request: &DestinationRequest) -> Result<Option<LogPlace>> {
    let mut levels = vec![own_place(request)?];
    if let Some((store, top)) = &request.above {
        for (folder, prefix) in folders_above(top)? {
            levels.push(LogPlace {
                store: Arc::clone(store),
                folder: log_folder(&folder)?,
                prefix,
                ..levels[0].clone()
            });
        }
    }
    for level in &levels {
        if let Some(found) = look_in(level, request)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns a log in the folder of `at` whose claims cover all claims of `request`.
fn look_in(at: &LogPlace, request: &DestinationRequest) -> Result<Option<LogPlace>> {
    let names = reachable(at.store.list_control(&at.folder))?.unwrap_or_default();
    let mine: Vec<RelPath> = if request.claims.is_empty() {
        vec![at.prefix.clone()]
    } else {
        let below = request
            .claims
            .iter()
            .map(|claim| at.prefix.join_path(claim));
        below.collect::<Result<_>>()?
    };
    for log in names {
        if layout::lease_of_log(&log).is_none() {
            continue;
        }
        let path = at.folder.join(&log)?;
        let Some(file) = reachable(at.store.open_control(&path, ControlMode::ReadOnly))? else {
            continue;
        };
        let found = Follower::begin(&mut StoredLog::new(file, &at.store, &path))
            .map_err(|error| error.file(&path))?;
        let Some(found) = found else { continue };
        let theirs = &found.header().claims;
        if mine.iter().all(|claim| layout::covers(theirs, claim)) {
            return Ok(Some(LogPlace { log, ..at.clone() }));
        }
    }
    Ok(None)
}

/// Returns an error if another transfer of the same request holds a log in the same folder. Two
/// transfers of the same request would collide at every file. If both begin concurrently, the
/// transfer with the greater log name fails, and the other one waits for up to `patience`. `own` is
/// the name of our log.
pub(super) fn refuse_same_request(
    at: &LogPlace,
    words: &str,
    mark: u64,
    own: Option<&Name>,
    patience: Duration,
) -> Result<()> {
    if mark == 0 {
        return Ok(());
    }
    let until = Instant::now() + patience;
    for log in reachable(at.store.list_control(&at.folder))?.unwrap_or_default() {
        let is_another = log != at.log;
        let Some(lease) = layout::lease_of_log(&log).filter(|_| is_another) else {
            continue;
        };
        let lease = at.folder.join(&lease)?;
        let gives_way = own.is_some_and(|own| *own > log);
        while let Some(LeaseState::Held(file)) =
            reachable(look_at_lease(at.store.as_ref(), &lease))?
        {
            let record = read_lease(file.as_ref())?;
            if record.is_none_or(|record| record.request != mark) {
                break;
            }
            if gives_way || Instant::now() >= until {
                return Err(held(file.as_ref(), words));
            }
            drop(file);
            std::thread::sleep(HOLDER_PAUSE);
        }
    }
    Ok(())
}

/// State of a lease.
pub(super) enum LeaseState {
    /// A holder has the lease. Contains the open lease file.
    Held(Box<dyn ControlFile>),
    /// The lease is free. The number is the epoch of the last holder of the lease, or 0 if the
    /// lease never had a holder.
    Free(u64),
}

/// Returns the state of the lease at `path`.
///
/// # Errors
/// Errors of the store.
pub(super) fn look_at_lease(store: &dyn Store, path: &RelPath) -> Result<LeaseState> {
    let file = match store.open_control(path, ControlMode::Existing) {
        Ok(file) => file,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(LeaseState::Free(0)),
        Err(error) => return Err(error),
    };
    if is_at_work(store, path, file.as_ref())? || !file.try_lock()? {
        return Ok(LeaseState::Held(file));
    }
    let last = read_lease(file.as_ref());
    file.unlock()?;
    Ok(LeaseState::Free(last?.map_or(0, |record| record.epoch)))
}

#[cfg(test)]
mod tests {
    use super::{LogStep, about_folder};
    use dray_core::{End, Error, ErrorKind, RelPath};

    #[test]
    fn errors_of_a_log_name_its_folder() {
        let told = |step: LogStep, path: &[u8]| {
            let path = RelPath::parse(path).expect("a path");
            let error = Error::new(ErrorKind::Io, End::Sink, "sync the control file").file(&path);
            about_folder(error.cause("why"), "out/", step).to_string()
        };
        assert_eq!(
            told(LogStep::Use, b".dray-log/1.log"),
            "cannot write to the destination at the sink: input/output error \
             (out/ contains the log of unfinished copies: why)"
        );
        assert_eq!(
            told(LogStep::Remove, b".dray-log/1.lease"),
            "cannot remove the log of unfinished copies at the sink: input/output error (out/: why)"
        );
        assert!(told(LogStep::Use, b"a/b").contains("a/b"));
    }
}
