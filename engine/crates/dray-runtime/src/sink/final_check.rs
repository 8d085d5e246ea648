//! A check of a file as a whole, between its last byte and its name.

use dray_core::{Error, Result, Sums};

/// Compares each file with what another party knows of it, before the file gets its name.
pub trait FinalCheck: Send + Sync {
    /// Compares the sums of what was written. May block until [`Self::give_up`].
    ///
    /// # Errors
    /// Then the file gets no name.
    fn compare(&self, sums: &Sums) -> Result<()>;

    /// The copy is stopping: a comparison that waits ends with an error of kind
    /// [`dray_core::ErrorKind::Cancelled`].
    fn give_up(&self);

    /// A notice to the user when a file got its name without a comparison.
    fn notice(&self) -> Option<Error>;
}
