//! A check of a complete file, made after its last byte is written and before it is published.

use dray_core::{Error, Result, Sums};

/// Compares each file with independent information, such as a server's checksum, before it is
/// published.
pub trait FinalCheck: Send + Sync {
    /// Compares the checksums of the written data with the independent information. May block until
    /// [`Self::give_up`] is called.
    ///
    /// # Errors
    /// After any error the file is not published.
    fn compare(&self, sums: &Sums) -> Result<()>;

    /// Called when the copy stops. A waiting comparison then ends with an error of kind
    /// [`dray_core::ErrorKind::Cancelled`].
    fn give_up(&self);

    /// Returns a notice for the user if a file was published without a comparison.
    fn notice(&self) -> Option<Error>;
}
