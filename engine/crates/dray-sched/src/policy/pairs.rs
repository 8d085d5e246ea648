//! Policy `pairs`: different pairs of endpoints run concurrently.

use super::round::Round;
use super::{
    Candidates, Decision, Entry, Lines, MaxRunning, Pair, Phase, Policy, Slots, Transfer, View,
    keep_above, settle,
};
use crate::shares::WEIGHT_DEFAULT;
use dray_core::Time;
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry = Entry {
    description: "For each pair of endpoints, one transfer runs at a time; different pairs run \
        concurrently.",
    precedence: "another transfer between the same two endpoints moves first",
    max_running: MaxRunning::Default(usize::MAX),
    candidates: |_, _| Some(Candidates::first(Lines::Pairs, 1)),
    make: |settings| Box::new(Pairs::new(settings.running_max())),
};

/// Multiple-pair (Liu et al., 2010). Transfers of different pairs of endpoints run concurrently,
/// one transfer for each pair, up to a maximum number of pairs. Other pairs wait in line. Within a
/// pair, transfers run in the order of submission. After a transfer has ended, its pair goes to the
/// end of the line.
#[derive(Debug, Clone)]
pub struct Pairs {
    pairs_max: usize,
    round: Round,
}

impl Pairs {
    /// Creates the policy with a maximum number of concurrent pairs.
    #[must_use]
    pub fn new(pairs_max: usize) -> Self {
        Self {
            pairs_max,
            round: Round::default(),
        }
    }
}

/// Returns a pair as one string. Endpoint names contain no line break. If a name did, two pairs
/// could share a turn.
fn word(pair: Pair<'_>) -> String {
    format!("{}\n{}", pair.source, pair.sink)
}

impl Policy for Pairs {
    fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a> {
        let mut lines: BTreeMap<Pair<'a>, Vec<&Transfer<'a>>> = BTreeMap::new();
        for one in view.transfers.iter().filter(|one| one.is_ready(now)) {
            lines.entry(one.pair).or_default().push(one);
        }
        if lines.is_empty() {
            self.round = Round::default();
        }
        for line in lines.values_mut() {
            line.sort_by_key(|one| one.age());
            keep_above(line);
        }
        let mut order: Vec<_> = lines.iter().collect();
        order.sort_by_key(|(pair, line)| {
            // Pairs with a running transfer come before all others, whatever the turns.
            let is_running = line[0].phase == Phase::Running;
            (
                (!is_running, is_running.then_some(line[0].class)),
                self.round.place(&word(**pair)),
                line[0].submitted,
                line[0].id,
            )
        });
        let mut slots = Slots::new(view.limits, self.pairs_max);
        let mut run = Vec::new();
        for (pair, line) in order {
            // If a limit prevents a transfer of the pair, the next transfer of the pair may run.
            let Some(one) = line.iter().find(|one| slots.has(one)) else {
                continue;
            };
            slots.give(one);
            if one.phase != Phase::Running {
                self.round.serve(&word(*pair), WEIGHT_DEFAULT);
            }
            run.push(*one);
        }
        settle(view, &run, now)
    }
}
