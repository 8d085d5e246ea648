//! Decides which pieces of data a network fault affects.

use crate::draws::Draws;
use crate::plan::Fault;
use dray_core::lock::LockExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The faults that have begun at a proxy.
#[derive(Default)]
pub(super) struct Faults {
    begun: Mutex<Vec<Begun>>,
}

struct Begun {
    fault: Fault,
    probability: f64,
    left: u32,
    /// Length of the fault, from its first injection.
    length: Option<Duration>,
    first: Option<Instant>,
    draws: Draws,
    injected: Arc<AtomicU32>,
}

impl Begun {
    fn is_over(&self) -> bool {
        let passed = self.first.map(|first| first.elapsed());
        passed
            .zip(self.length)
            .is_some_and(|(passed, length)| passed > length)
    }
}

/// The treatment of one piece.
pub(super) struct Fate {
    /// Time for which the piece waits.
    pub(super) wait: Duration,
    pub(super) effect: Option<Effect>,
}

/// A change of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Flip the bit with this number.
    Flip(usize),
    /// Send the piece twice.
    Repeat,
    /// Let the piece change places with the next one. The number names the fault.
    Swap(usize),
}

impl Faults {
    /// Begins a fault. Returns the counter of its injections.
    pub(super) fn begin(&self, fault: &Fault, seed: u64) -> Option<Arc<AtomicU32>> {
        let (probability, left, length) = match fault {
            Fault::Delay {
                duration,
                probability,
                ..
            } => (*probability, u32::MAX, Some(*duration)),
            Fault::Corrupt(injections)
            | Fault::Reorder(injections)
            | Fault::Duplicate(injections) => (injections.probability, injections.count, None),
            _ => return None,
        };
        let injected = Arc::new(AtomicU32::new(0));
        self.begun.lock_unpoisoned().push(Begun {
            fault: *fault,
            probability,
            left,
            length,
            first: None,
            draws: Draws::new(seed),
            injected: Arc::clone(&injected),
        });
        Some(injected)
    }

    /// Returns the fate of a piece of `count` bytes. At most one fault changes the piece.
    pub(super) fn fate(&self, count: usize) -> Fate {
        let mut fate = Fate {
            wait: Duration::ZERO,
            effect: None,
        };
        let mut begun = self.begun.lock_unpoisoned();
        for (index, fault) in begun.iter_mut().enumerate() {
            if fault.left == 0 || fault.is_over() {
                continue;
            }
            let is_change = !matches!(fault.fault, Fault::Delay { .. });
            if (is_change && fate.effect.is_some()) || !fault.draws.happens(fault.probability) {
                continue;
            }
            fault.left -= 1;
            fault.first.get_or_insert_with(Instant::now);
            match fault.fault {
                Fault::Delay { delay, .. } => fate.wait += delay,
                Fault::Corrupt(_) => {
                    let bit = fault.draws.below(count as u64 * 8);
                    fate.effect = Some(Effect::Flip(usize::try_from(bit).unwrap_or(0)));
                }
                Fault::Duplicate(_) => fate.effect = Some(Effect::Repeat),
                // Counted when the next piece has arrived.
                _ => {
                    fate.effect = Some(Effect::Swap(index));
                    continue;
                }
            }
            fault.injected.fetch_add(1, Ordering::Relaxed);
        }
        fate
    }

    /// Ends a swap. If no other piece has come (`has_happened` is false), the fault is injected later.
    pub(super) fn swapped(&self, index: usize, has_happened: bool) {
        if let Some(fault) = self.begun.lock_unpoisoned().get_mut(index) {
            match has_happened {
                true => drop(fault.injected.fetch_add(1, Ordering::Relaxed)),
                false => fault.left += 1,
            }
        }
    }
}
