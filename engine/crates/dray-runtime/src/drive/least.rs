//! A copy that found nothing to copy: a mistyped pattern must not pass for success.

use super::{Ended, Ending};
use dray_core::{End, Error, ErrorKind};

impl Ended {
    /// The same, but refused if it ended well and took fewer than `files_min` files. What is there
    /// already counts, and so do links: something was found. `remedy` says how to allow it.
    #[must_use]
    pub fn with_least(self, files_min: u64, remedy: &str) -> Self {
        let progress = &self.progress;
        let found = progress.files_done + progress.links_listed;
        if !matches!(self.ending, Ending::Done { failed: 0 }) || found >= files_min {
            return self;
        }
        let cause = match found {
            0 => "no file was found there, or none that the patterns take".to_owned(),
            found => format!("{found} were found, and {files_min} are the least"),
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
