//! The clock of a program, which a fault can step.
//!
//! The library libfaketime is loaded into the program (`LD_PRELOAD`) and adds an offset to the
//! real-time clock. The library reads the offset from a file. Timers use the monotonic clock, and
//! file systems use the clock of the kernel; the offset changes neither of them.

use dray_core::{End, Error, ErrorKind, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Seconds for which libfaketime uses the offset before it reads the file again.
const READ_INTERVAL_SECONDS: &str = "1";
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

    /// Returns the variables that a process needs, so that its clock can step.
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
            ("FAKETIME_CACHE_DURATION", READ_INTERVAL_SECONDS.into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
    }

    /// Steps the clock, also of processes that start later. Returns false if not all of these
    /// processes have loaded the library, or if the offset could not be written.
    pub(crate) fn step(&mut self, by_ms: i64, processes: &[u32]) -> bool {
        let is_loaded = |process: &u32| {
            let maps = std::fs::read_to_string(format!("/proc/{process}/maps"));
            maps.is_ok_and(|maps| maps.contains(&*self.library.to_string_lossy()))
        };
        if processes.is_empty() || !processes.iter().all(is_loaded) {
            return false;
        }
        let before = self.offset_ms;
        self.offset_ms = before.saturating_add(by_ms);
        let is_written = self.write().is_ok();
        if !is_written {
            self.offset_ms = before;
        }
        is_written
    }

    /// Replaces the file as a whole: libfaketime ends a program that reads a part of an offset.
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
        // A relative path would depend on the folder in which a program starts.
        return Ok(found.canonicalize().unwrap_or_else(|_| found.clone()));
    }
    let places: Vec<_> = places
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    let cause = format!(
        "a fault of the kind clock_step needs libfaketime, which is not at {}",
        places.join(" or ")
    );
    let remedy =
        "install the package libfaketime, or name the file with `clock_library` in the plan";
    Err(
        Error::new(ErrorKind::InvalidRequest, End::Here, "prepare the clocks")
            .cause(cause)
            .remedy(remedy),
    )
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
        assert!(clock.step(3_600_000, &own));
        assert_eq!(offset(), "+3600.000\n");
        assert!(clock.step(-7_200_500, &own));
        assert_eq!(offset(), "-3600.500\n");
        assert!(!clock.step(1, &[]), "no process runs");
        let mut other = Clock::new(Path::new("/missing.so"), folder.path(), "b").expect("prepared");
        assert!(!other.step(1, &own), "the library is not loaded");
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = library(Some(Path::new("/missing.so"))).expect_err("missing");
        assert!(error.cause.contains("/missing.so"), "{}", error.cause);
    }
}
