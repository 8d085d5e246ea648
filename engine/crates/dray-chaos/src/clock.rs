//! The real-time clock of a program. Faults step this clock.
//!
//! The library libfaketime is loaded into the program (`LD_PRELOAD`) and adds an offset to the
//! real-time clock. The library reads the offset from a file. Timers use the monotonic clock, and
//! file systems use the clock of the kernel; the offset changes neither of them.

use dray_core::{End, Error, ErrorKind, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// libfaketime reads the file again if more than this number of whole seconds has passed.
const CACHED_SECONDS: &str = "0";
/// Variables that make libfaketime ignore the file of the offset.
pub(crate) const OTHER_VARIABLES: [&str; 2] = ["FAKETIME", "FAKETIME_SHARED"];
/// Folder of the shared memory that libfaketime creates for each process. A killed process leaves
/// these files.
const SHARED_FOLDER: &str = "/dev/shm";
const SHARED_PREFIXES: [&str; 2] = ["faketime_shm_", "sem.faketime_sem_"];
/// File name of the library. This variant of libfaketime is for programs with threads.
const LIBRARY: &str = "libfaketimeMT.so.1";

/// The clock of the processes of one program.
#[derive(Debug)]
pub(crate) struct Clock {
    library: PathBuf,
    file: PathBuf,
    offset_ms: i64,
}

impl Clock {
    /// Prepares the clock of the program `name`, without an offset.
    ///
    /// # Errors
    /// If the file of the offset cannot be written in `folder`.
    pub(crate) fn new(library: &Path, folder: &Path, name: &str) -> Result<Self> {
        let clock = Self {
            library: library.to_owned(),
            file: folder.join(format!("{name}.clock")),
            offset_ms: 0,
        };
        clock.write().map_err(|error| {
            let operation = format!("write the clock offset {}", clock.file.display());
            Error::new(error.kind().into(), End::Here, operation)
                .cause(error.to_string())
                .remedy("check that TMPDIR names a writable folder with free space")
        })?;
        Ok(clock)
    }

    /// Returns the environment variables that load libfaketime and name the file of the offset.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        const PRELOAD: &str = "LD_PRELOAD";
        let mut preload = self.library.clone().into_os_string();
        if let Some(other) = std::env::var_os(PRELOAD).filter(|other| !other.is_empty()) {
            preload.push(":");
            preload.push(other);
        }
        vec![
            (PRELOAD, preload),
            (
                "FAKETIME_TIMESTAMP_FILE",
                self.file.clone().into_os_string(),
            ),
            ("FAKETIME_CACHE_DURATION", CACHED_SECONDS.into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
    }

    /// Steps the clock of the running `processes`, and of processes that start later.
    ///
    /// # Errors
    /// The reason if the clock cannot step: a process has not loaded the library, no process runs,
    /// or the offset cannot be written.
    pub(crate) fn step(
        &mut self,
        by_ms: i64,
        processes: &[u32],
    ) -> std::result::Result<(), String> {
        let library = self.library.to_string_lossy();
        let is_loaded = |process: &u32| {
            let maps = std::fs::read_to_string(format!("/proc/{process}/maps"));
            maps.is_ok_and(|maps| maps.contains(&*library))
        };
        if processes.is_empty() {
            return Err("no process of the program is running".to_owned());
        }
        if let Some(process) = processes.iter().find(|process| !is_loaded(process)) {
            return Err(format!("process {process} has not loaded {library}"));
        }
        let before = self.offset_ms;
        self.offset_ms = before.saturating_add(by_ms);
        self.write().map_err(|error| {
            self.offset_ms = before;
            format!("cannot write {}: {error}", self.file.display())
        })
    }

    /// Replaces the file as a whole. libfaketime ends a program that reads an empty file, and takes
    /// a part of an offset for the whole offset.
    fn write(&self) -> std::io::Result<()> {
        let new = self.file.with_extension("new");
        let sign = if self.offset_ms < 0 { '-' } else { '+' };
        let offset = self.offset_ms.unsigned_abs();
        let text = format!("{sign}{}.{:03}\n", offset / 1000, offset % 1000);
        std::fs::write(&new, text)?;
        std::fs::rename(&new, &self.file)
    }
}

/// Returns the path of libfaketime: the path of the plan, or the place of a package.
///
/// # Errors
/// `InvalidRequest` if no file exists there.
pub(crate) fn library(given: Option<&Path>) -> Result<PathBuf> {
    let places = match given {
        Some(given) => vec![given.to_owned()],
        None => ["/usr/lib", "/usr/lib64"]
            .iter()
            .flat_map(|top| {
                let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
                [Path::new(top).join(triplet), Path::new(top).to_owned()]
            })
            .map(|folder| folder.join("faketime").join(LIBRARY))
            .collect(),
    };
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return checked(found);
    }
    let places = places.iter().map(|place| place.display().to_string());
    let places: Vec<_> = places.collect();
    let cause = format!(
        "a fault of the kind clock_step needs libfaketime, which is not at {}",
        places.join(" or ")
    );
    let remedy = match given {
        Some(_) => "correct `clock_library` in the plan",
        None => {
            "install the package libfaketime, or name the file with `clock_library` in the plan"
        }
    };
    Err(refused(cause, remedy))
}

fn refused(cause: String, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "prepare the clocks")
        .cause(cause)
        .remedy(remedy)
}

/// Resolves links in the path of the library, because `/proc` shows the resolved path.
fn checked(library: &Path) -> Result<PathBuf> {
    let path = library
        .canonicalize()
        .unwrap_or_else(|_| library.to_owned());
    // `LD_PRELOAD` has no escape for these characters.
    if path.to_string_lossy().contains([' ', ':']) {
        let cause = format!(
            "the path {} has a space or a colon, which LD_PRELOAD does not allow",
            path.display()
        );
        let remedy = "copy the library to another folder, and name the copy with `clock_library`";
        return Err(refused(cause, remedy));
    }
    Ok(path)
}

/// Removes the shared memory that killed processes have left since `began`. Ignores errors.
pub(crate) fn remove_shared_memory(began: SystemTime) {
    let Ok(entries) = std::fs::read_dir(SHARED_FOLDER) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let mut prefixes = SHARED_PREFIXES.iter();
        let process = prefixes.find_map(|prefix| name.strip_prefix(prefix));
        let Some(process) = process.and_then(|process| process.parse::<u32>().ok()) else {
            continue;
        };
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let is_new = modified.is_ok_and(|modified| modified >= began);
        if is_new && !Path::new("/proc").join(process.to_string()).exists() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, library};
    use std::path::Path;

    #[test]
    fn the_file_of_a_clock_has_the_sum_of_its_steps() {
        let folder = tempfile::tempdir().expect("a folder");
        // The library of C is loaded into this process.
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        let mut paths = maps.lines().filter_map(|line| line.split(' ').next_back());
        let loaded = paths.find(|path| path.contains("libc")).expect("a library");
        let mut clock = Clock::new(Path::new(loaded), folder.path(), "a").expect("prepared");
        let offset = || std::fs::read_to_string(folder.path().join("a.clock")).expect("readable");
        assert_eq!(offset(), "+0.000\n");
        let own = [std::process::id()];
        assert_eq!(clock.step(3_600_000, &own), Ok(()));
        assert_eq!(offset(), "+3600.000\n");
        assert_eq!(clock.step(-7_200_500, &own), Ok(()));
        assert_eq!(offset(), "-3600.500\n");
        assert!(clock.step(1, &[]).is_err(), "no process runs");
        let mut other = Clock::new(Path::new("/missing.so"), folder.path(), "b").expect("prepared");
        let reason = other.step(1, &own).expect_err("the library is not loaded");
        assert!(reason.contains("has not loaded /missing.so"), "{reason}");
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = library(Some(Path::new("/missing.so"))).expect_err("missing");
        assert!(error.cause.contains("/missing.so"), "{}", error.cause);
    }
}
