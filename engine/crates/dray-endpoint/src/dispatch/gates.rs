//! Builds the policy's view of the sessions, and carries out the policy's decisions: shuts and
//! opens the pace gates of sessions, and ends sessions.

use super::choose::{Plan, TransferView};
use super::preempt::Starts;
use super::{DispatcherInner, Running};
use dray_core::{Result, TransferId};
use dray_queue::QueuedTransfer;
use dray_queue::clock;
use dray_sched::policy::Phase;
use std::collections::BTreeSet;

impl DispatcherInner {
    /// Reads the requests of running transfers again that a caller has changed.
    pub(super) fn refresh(&self) {
        let stale: Vec<TransferId> = {
            let state = self.state();
            let stale = state.running.iter().filter(|(_, running)| running.is_stale);
            stale.map(|(id, _)| id.clone()).collect()
        };
        for id in stale {
            // Clear the flag before the request is read. If a caller changes the request during the
            // read, the flag is set again, and the next round reads the request again.
            if let Some(running) = self.state().running.get_mut(&id) {
                running.is_stale = false;
            }
            let request = self.queue.request(&id);
            if let Some(running) = self.state().running.get_mut(&id) {
                match &request {
                    Ok(Some(request)) => {
                        let seen = &mut running.view;
                        (seen.class, seen.priority) = (request.class(), request.priority);
                        seen.deadline = request.deadline;
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!(transfer = %id, "cannot read the changed settings of \
                            running transfers: {error}");
                        running.is_stale = true;
                    }
                }
            }
        }
    }

    /// Asks the policy for a decision. Returns the policy's plan, and the waiting transfers that
    /// the policy considered. The plan of promises, not the policy, decides about the transfers in
    /// `movers`.
    pub(super) fn plan(&self, movers: &Starts<'_>) -> Result<(Plan, Vec<QueuedTransfer>)> {
        let mut chooser = self.chooser();
        let (mut seen, known, held) = {
            let state = self.state();
            if state.is_stopping {
                return Ok((Plan::default(), Vec::new()));
            }
            let known: BTreeSet<TransferId> = state.running.keys().cloned().collect();
            let running = state.running.values().filter(|one| !one.is_leaving);
            let seen: Vec<TransferView> = running.map(Running::view).collect();
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
        // Skip a queued transfer whose previous session is still in the table.
        queued.retain(|one| !known.contains(&one.id) && !self.awaits_root(&one.id));
        seen.extend(queued.iter().map(|one| chooser.waiting(one, &self.config)));
        // Separate the promised transfers that the plan of promises moves now. This plan decides
        // when they run. The policy only counts their slots: it neither starts nor holds these
        // transfers.
        let (beside, seen): (Vec<TransferView>, Vec<TransferView>) =
            (seen.into_iter()).partition(|one| movers.contains_key(one.id.as_str()));
        let mut plan = chooser.decide(&seen, &beside, &self.config, clock::now());
        // Resume the promised transfers that are still held. The policy held their sessions before
        // the promise was made, or before the planned start.
        let held = beside.iter().filter(|one| one.phase == Phase::Held);
        plan.go_on.extend(held.map(|one| one.id.clone()));
        Ok((plan, queued))
    }

    /// Returns true if a transfer waits until the slow root to which it writes is recognised.
    pub(super) fn awaits_root(&self, id: &TransferId) -> bool {
        if !self.queue.tiers().has_closed() {
            return false;
        }
        let found = self.queue.request_and_route(id);
        let Ok(Some((_, route))) = found else {
            return false;
        };
        let root = route.destination().root();
        root.is_some_and(|root| self.queue.tiers().is_closed(&root))
    }

    /// Shuts the pace gate of a running session, or opens it again.
    pub(super) fn hold(&self, id: &TransferId, is_held: bool) {
        if let Some(running) = self.state().running.get_mut(id) {
            running.view.phase = if is_held { Phase::Held } else { Phase::Running };
            running.view.since = clock::now();
            running.moving.hold(is_held);
        }
        self.queue.held(id, is_held);
    }

    /// Ends a session in favour of another transfer. The transfer of the ended session is queued
    /// again, and its durable data is kept. The owner gets a notice when the session has ended for
    /// this reason, and not before, because the transfer may still complete first.
    pub(super) fn release(&self, id: &TransferId) {
        if let Some(running) = self.state().running.get_mut(id) {
            running.is_leaving = true;
            running.moving.handle.cancel(false);
        }
    }
}
