//! `dray.read_log`: reads an object log without changing it.

use crate::error::to_python;
use crate::values::{Pair, file_name, to_pair, word};
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_log::{Damage, LoggedFile, Recovery, Tenure, recover};
use dray_runtime::sink::StoredLog;
use dray_store::{ControlMode, PosixOptions, PosixStore, Store};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

#[derive(IntoPyObject)]
struct TenureWords {
    epoch: u64,
    holder: String,
    transfer_id: String,
    boot_id: Vec<u8>,
    durability: String,
}

impl From<&Tenure> for TenureWords {
    fn from(tenure: &Tenure) -> Self {
        Self {
            epoch: tenure.epoch,
            holder: tenure.holder.clone(),
            transfer_id: tenure.transfer.to_string(),
            boot_id: tenure.boot_id.as_bytes().to_vec(),
            durability: word(&tenure.durability),
        }
    }
}

#[derive(IntoPyObject)]
struct FileWords {
    path: OsString,
    size: u64,
    modified_ns: i128,
    checksum: Option<String>,
    identity: Vec<u8>,
    object_size: u64,
    partial_name: OsString,
    done: Vec<(u64, u64, Pair)>,
    is_weak: bool,
}

impl FileWords {
    fn of(path: &RelPath, file: &LoggedFile) -> Self {
        let modified = file.key.modified;
        let done = file.done.iter();
        Self {
            path: file_name(path).to_owned(),
            size: file.key.size,
            modified_ns: i128::from(modified.seconds) * 1_000_000_000
                + i128::from(modified.nanoseconds),
            checksum: file.key.demanded.map(|sum| sum.to_string()),
            identity: file.key.identity.clone(),
            object_size: file.object_bytes.get(),
            partial_name: std::ffi::OsStr::from_bytes(file.partial.name.as_bytes()).to_owned(),
            done: done
                .map(|(range, sums)| (range.offset, range.length, to_pair(sums)))
                .collect(),
            is_weak: file.is_weak,
        }
    }
}

#[derive(IntoPyObject)]
struct DamageWords {
    places: Vec<(u64, u64)>,
    count: u64,
    files_forgotten: u64,
    files_kept: u64,
}

impl From<&Damage> for DamageWords {
    fn from(damage: &Damage) -> Self {
        let places = damage.places.iter();
        Self {
            places: places.map(|place| (place.offset, place.length)).collect(),
            count: damage.count,
            files_forgotten: damage.files_forgotten,
            files_kept: damage.files_kept,
        }
    }
}

/// The fields of `dray.LogReport`. Nested fields are dictionaries.
#[derive(IntoPyObject)]
pub(crate) struct LogWords {
    claims: Vec<OsString>,
    owner: Vec<u8>,
    nonce: u64,
    software: String,
    first_tenure: TenureWords,
    tenure: TenureWords,
    files: Vec<FileWords>,
    torn_bytes: u64,
    damage: Option<DamageWords>,
    records_over_limit: u64,
    log_bytes: u64,
}

impl From<Recovery> for LogWords {
    fn from(log: Recovery) -> Self {
        let claims = log.header.claims.iter();
        Self {
            claims: claims.map(|claim| file_name(claim).to_owned()).collect(),
            owner: log.header.owner.clone(),
            nonce: log.header.nonce,
            software: log.header.software.clone(),
            first_tenure: (&log.header.tenure).into(),
            tenure: (&log.tenure).into(),
            files: log
                .files
                .iter()
                .map(|(path, file)| FileWords::of(path, file))
                .collect(),
            torn_bytes: log.torn_bytes,
            damage: log.damage.as_ref().map(Into::into),
            records_over_limit: log.over_limit,
            log_bytes: log.log_bytes(),
        }
    }
}

/// Reads the log at `path`. See `dray.read_log`.
pub(crate) fn read(py: Python<'_>, path: &Path) -> PyResult<LogWords> {
    py.detach(|| recovered(path).map(LogWords::from))
        .map_err(|error| to_python(py, &error))
}

fn recovered(path: &Path) -> Result<Recovery> {
    let failed = |kind, cause: &str| {
        Error::new(kind, End::Here, "read the object log")
            .cause(format!("{}: {cause}", path.display()))
            .remedy("give the log of an unfinished copy, which is a file DST/.dray-log/*.log")
    };
    let name = path
        .file_name()
        .ok_or_else(|| failed(ErrorKind::InvalidRequest, "the path has no file name"))?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let store: Arc<dyn Store> = Arc::new(PosixStore::open(
        folder,
        End::Here,
        PosixOptions::default(),
    )?);
    let log = RelPath::root().join(&Name::new(name.as_bytes())?)?;
    let file = store.open_control(&log, ControlMode::ReadOnly)?;
    recover(&mut StoredLog::new(file, &store, &log))?.ok_or_else(|| {
        failed(
            ErrorKind::NotFound,
            "the log file is empty: no log was written",
        )
    })
}
