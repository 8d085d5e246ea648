//! Reports a copy without any file as a failure, so that a mistyped pattern does not look like a
//! success.

use super::{Ended, Ending};
use dray_core::{End, Error, ErrorKind};

impl Ended {
    /// Refuses a session that succeeded with fewer than `files_min` files. Links count as files,
    /// and so do files that existed at the destination before. `remedy` tells the user how to allow
    /// fewer files.
    #[must_use]
    pub fn with_least(self, files_min: u64, remedy: &str) -> Self {
        let progress = &self.progress;
        let found = progress.files_done + progress.links_listed;
        if !matches!(self.ending, Ending::Done { failed: 0 }) || found >= files_min {
            return self;
        }
        let cause = match found {
            0 => "the source has no files, or no file matches the patterns".to_owned(),
            found => format!("{found} files were found, but at least {files_min} are required"),
        };
        let error = Error::new(ErrorKind::NothingMatched, End::Source, "find the files")
            .cause(cause)
            .remedy(format!("check the path and the patterns, or {remedy}"));
        Self {
            ending: Ending::Refused(error),
            ..self
        }
    }
}
