//! Pairs of endpoints side by side.

use super::round::Round;
use super::{Decision, Pair, Phase, Places, Policy, Transfer, View, keep_above, settle};
use crate::shares::WEIGHT_DEFAULT;
use dray_core::Time;
use std::collections::BTreeMap;

/// Multiple-pair (Liu et al., 2010): transfers of different pairs of endpoints run side by
/// side, one of each pair and so many pairs at a time; further pairs wait in line. Of one pair what was
/// submitted first goes first. A pair whose transfer has ended goes to the end of the line.
#[derive(Debug, Clone)]
pub struct Pairs {
    pairs_max: usize,
    round: Round,
}

impl Pairs {
    /// So many pairs at once.
    #[must_use]
    pub fn new(pairs_max: usize) -> Self {
        Self {
            pairs_max,
            round: Round::default(),
        }
    }
}

/// A pair as one word; no name of an endpoint has a line break in it, and if it had, two pairs
/// would share a turn.
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
            // What runs keeps its place before anybody's turn.
            let is_running = line[0].phase == Phase::Running;
            (
                (!is_running, is_running.then_some(line[0].class)),
                self.round.place(&word(**pair)),
                line[0].submitted,
                line[0].id,
            )
        });
        let mut places = Places::new(view.limits, self.pairs_max);
        let mut run = Vec::new();
        for (pair, line) in order {
            // Who is held up by a limit leaves the turn to the pair's next.
            let Some(one) = line.iter().find(|one| places.has(one)) else {
                continue;
            };
            places.give(one);
            if one.phase != Phase::Running {
                self.round.serve(&word(*pair), WEIGHT_DEFAULT);
            }
            run.push(*one);
        }
        settle(view, &run, now)
    }
}
