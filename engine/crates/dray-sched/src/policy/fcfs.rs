//! Policy `fcfs`: starts transfers in the order of submission.

use super::{
    Candidates, Decision, Entry, Lines, MaxRunning, Phase, Policy, Slots, Transfer, View,
    keep_above, settle,
};
use dray_core::Time;

pub(super) const ENTRY: Entry = Entry {
    description: "Transfers run in the order of submission.",
    precedence: "transfers that were submitted earlier move first",
    max_running: MaxRunning::Default(usize::MAX),
    candidates: |_, load| Some(Candidates::first(Lines::Ages, load.running_max)),
    make: |settings| Box::new(Fcfs::new(settings.running_max())),
};

/// First come, first served. A running transfer runs to its end. Then the waiting transfer that was
/// submitted first starts. A transfer that cannot start because of a limit or its `not_before` does
/// not delay others.
#[derive(Debug, Clone)]
pub struct Fcfs {
    max_running: usize,
}

impl Fcfs {
    /// Creates the policy with a maximum number of concurrent transfers.
    #[must_use]
    pub const fn new(max_running: usize) -> Self {
        Self { max_running }
    }
}

impl Policy for Fcfs {
    fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a> {
        let ready = view.transfers.iter().filter(|one| one.is_ready(now));
        let mut order: Vec<&Transfer<'a>> = ready.collect();
        order.sort_by_key(|one| (one.phase != Phase::Running, one.submitted, one.id));
        keep_above(&mut order);
        let mut slots = Slots::new(view.limits, self.max_running);
        settle(view, &slots.fill(order.into_iter()), now)
    }
}
