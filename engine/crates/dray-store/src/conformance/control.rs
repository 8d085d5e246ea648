//! Cases for control files: the object log and the lease.

use super::{Case, Outcome, ensure, ensure_eq, ensure_error, path};
use crate::store::{ControlFile, Store};
use crate::types::{Capabilities, ControlMode};
use dray_core::{ErrorKind, RelPath};
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a log is appended, cut, synced and found again",
        lacks: no_log,
        run: log,
    },
    Case {
        name: "a log is replaced as a whole",
        lacks: no_log,
        run: replace,
    },
    Case {
        name: "one handle holds the lock, until it falls",
        lacks: no_log,
        run: lock,
    },
    Case {
        name: "control files are opened as asked, and removed",
        lacks: no_log,
        run: modes,
    },
];

fn no_log(can: &Capabilities) -> Option<&'static str> {
    (!can.can_hold_log).then_some("place for a log")
}

fn log_path() -> RelPath {
    path(".dray-logs/log")
}

fn read(file: &dyn ControlFile) -> Result<Vec<u8>, super::Broken> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 7];
    loop {
        let count = file.read_at(bytes.len() as u64, &mut buffer)?;
        if count == 0 {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
}

fn log(store: &dyn Store) -> Outcome {
    let file = store.open_control(&log_path(), ControlMode::Create)?;
    ensure!(file.is_empty()?, "a new log is not empty");
    for record in ["one ", "two ", "three"] {
        file.append(record.as_bytes())?;
    }
    file.sync()?;
    file.sync()?;
    ensure_eq!(file.len()?, 13, "its length");
    drop(file);

    let file = store.open_control(&log_path(), ControlMode::Existing)?;
    ensure_eq!(read(&*file)?, b"one two three", "its bytes");
    file.truncate(8)?;
    file.append(b"end")?;
    file.write_at(0, b"ONE")?;
    file.write_at(12, b"!")?;
    file.sync()?;
    ensure_eq!(read(&*file)?, b"ONE two end\0!", "its bytes after cutting");
    Ok(())
}

fn replace(store: &dyn Store) -> Outcome {
    let file = store.open_control(&log_path(), ControlMode::Create)?;
    file.append(b"long and old")?;
    let other = store.open_control(&log_path(), ControlMode::Existing)?;
    file.replace(b"new")?;
    ensure_eq!(
        read(&*file)?,
        b"new",
        "the log by the handle that replaced it"
    );
    file.append(b"er")?;
    file.sync()?;
    drop(other);
    let file = store.open_control(&log_path(), ControlMode::Existing)?;
    ensure_eq!(read(&*file)?, b"newer", "the log opened again");
    let names = store.list_control(&path(".dray-logs"))?;
    ensure_eq!(names.len(), 1, "names in the folder");
    Ok(())
}

/// Time within which the lock of a closed handle must be free.
const LOCK_FALLS_WITHIN: Duration = Duration::from_secs(5);

fn lock(store: &dyn Store) -> Outcome {
    let lease = path(".dray-logs/lease");
    let first = store.open_control(&lease, ControlMode::Create)?;
    let second = store.open_control(&lease, ControlMode::Create)?;
    ensure!(first.try_lock()?, "a free lock was not given");
    ensure!(first.try_lock()?, "a lock was not given to its holder");
    ensure!(!second.try_lock()?, "a lock was given twice");
    second.unlock()?;
    ensure!(!second.try_lock()?, "another's lock was given back");
    first.unlock()?;
    ensure!(second.try_lock()?, "a lock given back was not given");
    ensure!(!first.try_lock()?, "a lock was given twice");
    drop(second);
    // A FUSE file system releases the lock some time after the handle is closed.
    let until = Instant::now() + LOCK_FALLS_WITHIN;
    while !first.try_lock()? {
        ensure!(
            Instant::now() < until,
            "the lock did not fall with its handle"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn modes(store: &dyn Store) -> Outcome {
    let log = log_path();
    let open = |mode| store.open_control(&log, mode).map(drop);
    ensure_error(open(ControlMode::Existing), ErrorKind::NotFound, "Existing")?;
    ensure_error(open(ControlMode::ReadOnly), ErrorKind::NotFound, "ReadOnly")?;
    let names = store.list_control(&path(".dray-logs"))?;
    ensure!(names.is_empty(), "names in no folder: {names:?}");
    open(ControlMode::CreateNew)?;
    ensure_error(
        open(ControlMode::CreateNew),
        ErrorKind::AlreadyExists,
        "CreateNew",
    )?;
    open(ControlMode::Create)?;
    open(ControlMode::ReadOnly)?;
    let names = store.list_control(&path(".dray-logs"))?;
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    ensure_eq!(names, ["log"], "names in the folder");
    store.remove_control(&log)?;
    store.remove_control(&log)?;
    ensure_error(
        open(ControlMode::Existing),
        ErrorKind::NotFound,
        "after removing",
    )
}
