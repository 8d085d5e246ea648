//! A bound on the operations in flight to one OSD. A stopped OSD then holds only its own slots.

use dray_core::lock::LockExt;
use std::sync::{Condvar, Mutex};

/// Maximum number of operations in flight to an OSD. An OSD executes about this many operations
/// concurrently, and 64 operations of 4 MiB hold at most 256 MiB.
const IN_FLIGHT_MAX: usize = 64;

/// The slots of an OSD.
#[derive(Default)]
pub(crate) struct Slots {
    used: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    /// Takes a slot. Waits until one is free.
    pub(crate) fn take(&self) {
        let mut used = self.used.lock_unpoisoned();
        while *used >= IN_FLIGHT_MAX {
            used = match self.freed.wait(used) {
                Ok(used) => used,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        *used += 1;
    }

    /// Frees a slot.
    pub(crate) fn free(&self) {
        let mut used = self.used.lock_unpoisoned();
        *used = used.saturating_sub(1);
        self.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{IN_FLIGHT_MAX, Slots};
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_full_osd_holds_the_next_operation() {
        let slots = Arc::new(Slots::default());
        for _ in 0..IN_FLIGHT_MAX {
            slots.take();
        }
        let (sender, taken) = channel();
        let other = Arc::clone(&slots);
        let thread = std::thread::spawn(move || {
            other.take();
            sender.send(()).expect("a receiver");
        });
        assert!(taken.recv_timeout(Duration::from_millis(50)).is_err());
        slots.free();
        taken.recv().expect("a slot");
        thread.join().expect("ended");
    }
}
