//! What the policy is told of what has a session, and how its word reaches a session: gates that are
//! shut and opened, and sessions that are given up.

use super::choose::{Plan, Seen};
use super::preempt::Starts;
use super::{Running, Shared};
use crate::clock;
use crate::queue::QueuedTransfer;
use dray_core::{Result, TransferId};
use dray_sched::policy::Phase;
use std::collections::BTreeSet;

impl Shared {
    /// What callers have changed of what runs.
    pub(super) fn refresh(&self) {
        let stale: Vec<TransferId> = {
            let state = self.state();
            let stale = state.running.iter().filter(|(_, running)| running.is_stale);
            stale.map(|(id, _)| id.clone()).collect()
        };
        for id in stale {
            // Before it is asked: what is changed meanwhile is asked for again.
            if let Some(running) = self.state().running.get_mut(&id) {
                running.is_stale = false;
            }
            let request = self.queue.request(&id);
            if let Some(running) = self.state().running.get_mut(&id) {
                match &request {
                    Ok(Some(request)) => {
                        let seen = &mut running.seen;
                        (seen.class, seen.priority) = (request.class(), request.priority);
                        seen.deadline = request.deadline;
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!(transfer = %id, "cannot read the changes: {error}");
                        running.is_stale = true;
                    }
                }
            }
        }
    }

    /// What the policy says, and what it saw waiting. `movers` are not its own to decide about.
    pub(super) fn plan(&self, movers: &Starts<'_>) -> Result<(Plan, Vec<QueuedTransfer>)> {
        let mut chooser = self.chooser();
        let (mut seen, known, held) = {
            let state = self.state();
            if state.is_stopping {
                return Ok((Plan::default(), Vec::new()));
            }
            let known: BTreeSet<TransferId> = state.running.keys().cloned().collect();
            let running = state.running.values().filter(|one| !one.is_leaving);
            let seen: Vec<Seen> = running.map(Running::seen).collect();
            let held = seen.iter().filter(|one| one.phase == Phase::Held).count();
            (seen, known, held)
        };
        let active = self.config.limits.transfers_active as usize;
        let free = active.saturating_sub(known.len() - held);
        let Some(sight) = chooser.sight(&self.config, free, held) else {
            chooser.skip();
            return Ok((Plan::default(), Vec::new()));
        };
        let (mut queued, next) = self.queue.runnable(sight)?;
        chooser.go_on_from(next);
        // Its session may not have left yet.
        queued.retain(|one| !known.contains(&one.id));
        seen.extend(queued.iter().map(|one| chooser.waiting(one, &self.config)));
        // What the plan has moving is bounded by admission, and no policy's to begin or to hold.
        let (beside, seen): (Vec<Seen>, Vec<Seen>) =
            (seen.into_iter()).partition(|one| movers.contains_key(one.id.as_str()));
        let mut plan = chooser.decide(&seen, &beside, &self.config, clock::now());
        // Held before it was promised, or before its time had come.
        let held = beside.iter().filter(|one| one.phase == Phase::Held);
        plan.go_on.extend(held.map(|one| one.id.clone()));
        Ok((plan, queued))
    }

    /// Shuts the gate of what moves, or opens it again.
    pub(super) fn hold(&self, id: &TransferId, is_held: bool) {
        if let Some(running) = self.state().running.get_mut(id) {
            running.seen.phase = if is_held { Phase::Held } else { Phase::Running };
            running.seen.since = clock::now();
            running.moving.hold(is_held);
        }
        self.queue.held(id, is_held);
    }

    /// Ends a session for others' sake: its transfer is queued again, what is safe stays safe. It is told
    /// so when the session has ended thus, for it may be done before.
    pub(super) fn release(&self, id: &TransferId) {
        if let Some(running) = self.state().running.get_mut(id) {
            running.is_leaving = true;
            running.moving.handle.cancel(false);
        }
    }
}
