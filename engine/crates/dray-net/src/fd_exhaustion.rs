//! Reports that a listener has no free file descriptors. Without this report, callers would wait
//! and the operator would not see a reason.

use dray_core::lock::LockExt;
use dray_core::{End, Error};
use dray_store::errno::too_many_open;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Minimum interval between two reports.
const INTERVAL: Duration = Duration::from_secs(60);

/// Time of the last report. All sockets of a listener share one value.
#[derive(Debug, Default)]
pub struct Lack(Mutex<Option<Instant>>);

impl Lack {
    /// Returns the error to report if `error` means that file descriptors are exhausted. Returns at
    /// most one report per interval.
    #[must_use]
    pub fn of(&self, error: &io::Error) -> Option<Error> {
        let lack = too_many_open(End::Here, "accept connections", error)?;
        let mut told = self.0.lock_unpoisoned();
        if told.is_some_and(|told| told.elapsed() < INTERVAL) {
            return None;
        }
        *told = Some(Instant::now());
        Some(lack)
    }
}

#[cfg(test)]
mod tests {
    use super::Lack;
    use rustix::io::Errno;

    #[test]
    fn a_shortage_of_descriptors_is_reported_once() {
        let lack = Lack::default();
        assert_eq!(lack.of(&Errno::CONNABORTED.into()), None);
        let told = lack.of(&Errno::MFILE.into()).expect("told");
        assert!(told.to_string().contains("ulimit -n"), "{told}");
        assert_eq!(lack.of(&Errno::NFILE.into()), None, "it was told just now");
    }
}
