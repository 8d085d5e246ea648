//! Locks that stay usable after a panic of another thread: the guarded value is consistent after
//! each change, or, like a TLS state, reports an error by itself if it is damaged. The object log
//! does not use them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex, also if it is poisoned.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
