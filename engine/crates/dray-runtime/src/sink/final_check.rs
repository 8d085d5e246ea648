//! A check of a file as a whole, between its last byte and its name.

use dray_core::{Error, Result, Sums};

/// Compares each file with what another party knows of it, before the file gets its name.
pub trait FinalCheck: Send + Sync {
    /// Compares the checksums of the written data. May block until [`Self::give_up`].
    ///
    /// # Errors
    /// Any error prevents the publishing of the file.
    fn compare(&self, sums: &Sums) -> Result<()>;

    /// Called when the copy stops: a waiting comparison ends with an error of kind
    /// [`dray_core::ErrorKind::Cancelled`].
    fn give_up(&self);

    /// Returns a notice to the user if a file was published without a comparison.
    fn notice(&self) -> Option<Error>;
}
