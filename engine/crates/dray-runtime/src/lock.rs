//! Locks that a panic elsewhere does not close: what they guard is whole after each change, or, as a
//! TLS state, fails by itself if it is no good. The object log is not among them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the mutex guards.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
