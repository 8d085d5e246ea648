//! A policy of `dray-sched` as a conductor. The policy chooses the transfers that run, and these
//! share the capacity.

use super::fill::RemainingCapacity;
use super::{Conductor, Event, Orders, Scene, Transfer, TransferIndex, TransferView};
use dray_core::Time;
use dray_sched::policy::{self, Limits, Pair, Phase, Policy, View};
use std::collections::BTreeMap;

/// A policy as a conductor.
#[derive(Debug)]
pub struct Ruled<'l> {
    policy: Box<dyn Policy>,
    limits: Limits,
    known: BTreeMap<TransferIndex, Known<'l>>,
}

/// State of a transfer that is present or has just ended.
#[derive(Debug)]
struct Known<'l> {
    id: String,
    transfer: &'l Transfer,
    phase: Phase,
    since: Time,
    served: u64,
}

impl<'l> Ruled<'l> {
    /// Creates a conductor for the transfers of `load` under a policy.
    #[must_use]
    pub fn new(load: &'l super::Load, policy: Box<dyn Policy>, limits: Limits) -> Self {
        let all = load.transfers.iter().enumerate();
        let known = all.map(|(at, transfer)| {
            let known = Known {
                id: at.to_string(),
                transfer,
                phase: Phase::Waiting,
                since: transfer.arrives,
                served: 0,
            };
            (TransferIndex(at), known)
        });
        Self {
            policy,
            limits,
            known: known.collect(),
        }
    }

    /// Replaces the policy from the next event on.
    pub fn change(&mut self, policy: Box<dyn Policy>) {
        self.policy = policy;
    }
}

impl Known<'_> {
    fn seen(&self, index: TransferIndex) -> policy::Transfer<'_> {
        let one = self.transfer;
        policy::Transfer {
            id: &self.id,
            owner: &one.owner,
            activity: &one.activity,
            pair: Pair {
                source: &one.source,
                sink: &one.sink,
            },
            peer: Some(one.sink.as_str()).filter(|sink| !sink.is_empty()),
            class: one.class,
            priority: one.priority,
            deadline: one.deadline,
            not_before: one.not_before,
            submitted: index.0 as u64,
            phase: self.phase,
            since: self.since,
            served: self.served,
        }
    }
}

impl Conductor for Ruled<'_> {
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders {
        let now = scene.now;
        for seen in scene.present {
            if let Some(known) = self.known.get_mut(&seen.index) {
                // Policies count whole bytes.
                known.served = seen.served as u64;
            }
        }
        let mut ended = Vec::new();
        for event in scene.events {
            if let Event::Finish(index) = event
                && let Some(mut known) = self.known.remove(index)
            {
                known.served = known.transfer.bytes;
                ended.push((*index, known));
            }
        }
        let indices: Vec<TransferIndex> = scene.present.iter().map(|seen| seen.index).collect();
        let transfers: Vec<_> = (indices.iter())
            .filter_map(|index| Some(self.known.get(index)?.seen(*index)))
            .collect();
        let left: Vec<_> = ended
            .iter()
            .map(|(index, known)| known.seen(*index))
            .collect();
        let view = View {
            transfers: &transfers,
            ended: &left,
            limits: &self.limits,
        };
        let decision = self.policy.decide(&view, now);
        let index = |id: &str| id.parse().ok().map(TransferIndex);
        let run: Vec<TransferIndex> = decision.run.iter().filter_map(|id| index(id)).collect();
        let released: Vec<_> = decision.release.iter().filter_map(|id| index(id)).collect();
        let look_after = decision.look_after.iter();
        let orders = Orders {
            look_again: decision.look_again,
            look_after: look_after
                .filter_map(|(id, bytes)| Some((index(id)?, *bytes)))
                .collect(),
            ..Orders::default()
        };
        for at in indices {
            let Some(known) = self.known.get_mut(&at) else {
                continue;
            };
            let phase = match known.phase {
                _ if run.contains(&at) => Phase::Running,
                Phase::Waiting => Phase::Waiting,
                _ if released.contains(&at) => Phase::Waiting,
                _ => Phase::Held,
            };
            if phase != known.phase {
                (known.phase, known.since) = (phase, now);
            }
        }
        let runs: Vec<(&TransferView<'_>, f64)> = (scene.present.iter())
            .filter(|seen| run.contains(&seen.index))
            .map(|seen| (seen, 1.0))
            .collect();
        Orders {
            rates: RemainingCapacity::new(scene).by_weight(&runs),
            ..orders
        }
    }
}
