//! Locks that stay usable after a thread panicked while it held the lock.
//!
//! Use these functions only if the protected value is consistent after each change. A value that
//! reports its own damage as an error is permitted too, such as the state of a TLS connection. The
//! object log does not use these functions.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks a mutex and ignores poisoning.
pub trait LockExt {
    /// Type of the value that the mutex protects.
    type Value;

    /// Locks the mutex, even if it is poisoned.
    fn lock_unpoisoned(&self) -> MutexGuard<'_, Self::Value>;
}

impl<T> LockExt for Mutex<T> {
    type Value = T;

    fn lock_unpoisoned(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks a reader-writer lock and ignores poisoning.
pub trait RwLockExt {
    /// Type of the value that the lock protects.
    type Value;

    /// Locks for reading, even if the lock is poisoned.
    fn read_unpoisoned(&self) -> RwLockReadGuard<'_, Self::Value>;

    /// Locks for writing, even if the lock is poisoned.
    fn write_unpoisoned(&self) -> RwLockWriteGuard<'_, Self::Value>;
}

impl<T> RwLockExt for RwLock<T> {
    type Value = T;

    fn read_unpoisoned(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_unpoisoned(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{LockExt, RwLockExt};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Mutex, RwLock};

    #[test]
    fn locks_work_after_a_panic() {
        let mutex = Mutex::new(1);
        let both = RwLock::new(1);
        let panic = || {
            let _mutex = mutex.lock_unpoisoned();
            let _both = both.write_unpoisoned();
            panic!("while both are locked");
        };
        assert!(catch_unwind(AssertUnwindSafe(panic)).is_err());
        assert!(mutex.is_poisoned() && both.is_poisoned());
        *mutex.lock_unpoisoned() += 1;
        *both.write_unpoisoned() += 1;
        assert_eq!((*mutex.lock_unpoisoned(), *both.read_unpoisoned()), (2, 2));
    }
}
