//! Fails a copy that found nothing to copy: a mistyped pattern must not look like a success.

use super::{Ended, Ending};
use dray_core::{End, Error, ErrorKind};

impl Ended {
    /// Refuses a session that succeeded with fewer than `files_min` files. Files that already exist
    /// at the destination count, and so do links. `remedy` tells the caller how to allow fewer.
    #[must_use]
    pub fn with_least(self, files_min: u64, remedy: &str) -> Self {
        let progress = &self.progress;
        let found = progress.files_done + progress.links_listed;
        if !matches!(self.ending, Ending::Done { failed: 0 }) || found >= files_min {
            return self;
        }
        let cause = match found {
            0 => "there is no file, or the patterns match none".to_owned(),
            found => format!("{found} files were found, and at least {files_min} are required"),
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
