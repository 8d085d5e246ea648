//! Builds the policy's view of transfers, and converts the policy's decision to a plan.
//!
//! Not for: carrying out the plan.
//!
//! The queue keeps waiting transfers in lines. For example, all waiting transfers of one owner,
//! class and priority form one line.
//!
//! Invariant owned here: the size of the view depends on the number of lines, and not on the number
//! of waiting transfers. The view contains only as many transfers of each line as could start.

use super::rules::{SessionPhase, limits, limits_beside, max_running, settings};
use super::time;
use dray_api::Timestamp;
use dray_api::{Scheduling, SchedulingPatch};
use dray_config::Config;
use dray_core::rate::Class;
use dray_core::{Time, TransferId};
use dray_queue::{CandidateQuery, QueuedTransfer};
use dray_sched::policy::{self, Load, Pair, Phase, Transfer, View};
use std::collections::{HashMap, HashSet};

/// Maximum number of queued transfers in the view of one decision. If the lines of the queue
/// contain more transfers, the next decision starts with the first line that this decision left
/// out.
const WAITING_MAX: usize = 2_000;

/// Maximum number of transfers whose last session's end is remembered. For all other transfers, the
/// policy uses the start of the process instead.
const LEFT_MAX: usize = 10_000;

/// A transfer as the policy sees it.
#[derive(Debug, Clone)]
pub(super) struct TransferView {
    pub(super) id: TransferId,
    pub(super) owner: String,
    pub(super) activity: String,
    pub(super) source: String,
    pub(super) sink: String,
    pub(super) peer: Option<String>,
    pub(super) class: Class,
    pub(super) priority: u8,
    pub(super) deadline: Option<Timestamp>,
    pub(super) submitted: u64,
    pub(super) phase: Phase,
    pub(super) since: Timestamp,
    pub(super) served: u64,
}

impl TransferView {
    fn transfer(&self) -> Transfer<'_> {
        Transfer {
            id: self.id.as_str(),
            owner: &self.owner,
            activity: &self.activity,
            pair: Pair {
                source: &self.source,
                sink: &self.sink,
            },
            peer: self.peer.as_deref(),
            class: self.class,
            priority: self.priority,
            deadline: self.deadline.map(time),
            // Always `None`, because the queue offers no transfer before its `not_before`.
            not_before: None,
            submitted: self.submitted,
            phase: self.phase,
            since: time(self.since),
            served: self.served,
        }
    }
}

/// The actions that one decision of the policy asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Transfers to start, in this order.
    pub(super) start: Vec<TransferId>,
    /// Running transfers whose sessions shall be held.
    pub(super) hold: Vec<TransferId>,
    /// Held transfers whose sessions shall resume.
    pub(super) go_on: Vec<TransferId>,
    /// Transfers that give up their session and are queued again.
    pub(super) release: Vec<TransferId>,
    /// Latest time at which the policy must decide again.
    pub(super) look_again: Option<Time>,
    /// When one of these transfers has moved this many bytes in total, the policy must decide
    /// again.
    pub(super) look_after: Vec<(TransferId, u64)>,
}

/// The policy, and the data that its view needs.
pub(super) struct Chooser {
    scheduler: policy::Scheduler,
    rules: Scheduling,
    /// The line at which the next query of waiting transfers starts.
    from: String,
    /// Transfers whose session has ended since the last decision, with the total bytes of each.
    ended: Vec<TransferView>,
    /// End of the last session of each transfer that is queued again.
    left: HashMap<TransferId, Timestamp>,
    began: Timestamp,
}

impl Chooser {
    pub(super) fn new(rules: Scheduling, now: Timestamp) -> Self {
        Self {
            scheduler: policy::Scheduler::new(settings(&rules)),
            rules,
            from: String::new(),
            ended: Vec::new(),
            left: HashMap::new(),
            began: now,
        }
    }

    pub(super) const fn rules(&self) -> &Scheduling {
        &self.rules
    }

    /// Changes the policy or its rules. The change takes effect with the next decision.
    pub(super) fn change(&mut self, patch: &SchedulingPatch) {
        self.rules = patch.apply(&self.rules);
        self.scheduler.change(settings(&self.rules));
        self.from.clear();
    }

    /// Records that a session has ended. Its transfer is queued again unless `has_ended`.
    pub(super) fn left(&mut self, seen: TransferView, now: Timestamp, has_ended: bool) {
        self.left.remove(&seen.id);
        if !has_ended {
            if self.left.len() >= LEFT_MAX {
                let oldest = self.left.iter().min_by_key(|(_, left)| **left);
                if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                    self.left.remove(&id);
                }
            }
            self.left.insert(seen.id.clone(), now);
        }
        self.ended.push(seen);
    }

    /// Returns the query for waiting transfers. `free` is the number of further transfers that
    /// could run, and `held` is the number of held transfers. Returns `None` if no waiting transfer
    /// could change the decision.
    pub(super) fn sight(
        &self,
        config: &Config,
        free: usize,
        held: usize,
    ) -> Option<CandidateQuery<'_>> {
        let load = Load {
            free,
            held,
            running_max: max_running(&self.rules, config) as usize,
        };
        let wanted = settings(&self.rules).candidates(&load)?;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Some(CandidateQuery {
            lines: wanted.lines,
            per_line: count(wanted.per_line).min(config.limits.per_owner_active),
            oldest: count(wanted.oldest),
            transfers_max: WAITING_MAX,
            from: &self.from,
        })
    }

    pub(super) fn go_on_from(&mut self, line: Option<String>) {
        self.from = line.unwrap_or_default();
    }

    /// Forgets the ended sessions. Called in rounds without a decision.
    pub(super) fn skip(&mut self) {
        self.ended.clear();
    }

    /// Converts a queued transfer to the policy's view of it.
    pub(super) fn waiting(&self, one: &QueuedTransfer, config: &Config) -> TransferView {
        let since = match one.has_run {
            false => one.waits_since,
            true => self.left.get(&one.id).copied().unwrap_or(self.began),
        };
        let (source, sink) = (one.source_peer.clone(), one.sink_peer.clone());
        TransferView {
            id: one.id.clone(),
            owner: one.owner.clone(),
            activity: one.activity.clone(),
            peer: source.clone().or_else(|| sink.clone()),
            source: source.unwrap_or_else(|| config.name.clone()),
            sink: sink.unwrap_or_else(|| config.name.clone()),
            class: one.class,
            priority: one.priority,
            deadline: one.deadline,
            submitted: u64::try_from(one.seq).unwrap_or(0),
            phase: Phase::Waiting,
            since,
            served: one.sent,
        }
    }

    /// Asks the policy for a decision. `seen` has the queued transfers and those with a session.
    /// `beside` has the promised transfers, which the policy does not control, but whose slots it
    /// counts.
    pub(super) fn decide(
        &mut self,
        seen: &[TransferView],
        beside: &[TransferView],
        config: &Config,
        now: Timestamp,
    ) -> Plan {
        let transfers: Vec<Transfer<'_>> = seen.iter().map(TransferView::transfer).collect();
        let by_id: HashMap<&str, &TransferView> =
            seen.iter().map(|one| (one.id.as_str(), one)).collect();
        let ended: Vec<TransferView> = std::mem::take(&mut self.ended);
        let ended = ended
            .iter()
            .filter(|one| !by_id.contains_key(one.id.as_str()));
        let ended: Vec<Transfer<'_>> = ended.map(TransferView::transfer).collect();
        let (own, taken) = (session_phases(seen), session_phases(beside));
        let limits = limits_beside(limits(&self.rules, config), &own, &taken);
        let view = View {
            transfers: &transfers,
            ended: &ended,
            limits: &limits,
        };
        let decision = self.scheduler.decide(&view, time(now));
        let of_phase = |ids: &[&str], phase: Phase| -> Vec<TransferId> {
            let found = ids.iter().filter_map(|id| by_id.get(id));
            let found = found.filter(|one| one.phase == phase);
            found.map(|one| one.id.clone()).collect()
        };
        let released: HashSet<&str> = decision.release.iter().copied().collect();
        let mut hold = decision.hold.clone();
        hold.retain(|id| !released.contains(id));
        let mut leaving = of_phase(&decision.release, Phase::Held);
        leaving.extend(of_phase(&decision.release, Phase::Running));
        let after = decision.look_after.iter();
        let after = after.filter_map(|(id, bytes)| Some((by_id.get(id)?.id.clone(), *bytes)));
        Plan {
            start: of_phase(&decision.run, Phase::Waiting),
            go_on: of_phase(&decision.run, Phase::Held),
            hold: of_phase(&hold, Phase::Running),
            release: leaving,
            look_again: decision.look_again,
            look_after: after.collect(),
        }
    }
}

/// Returns the owner and the phase of each transfer.
fn session_phases(all: &[TransferView]) -> Vec<SessionPhase<'_>> {
    let places = all.iter().map(|one| SessionPhase {
        owner: &one.owner,
        phase: one.phase,
    });
    places.collect()
}

#[cfg(test)]
mod tests;
