//! Configured rates that many sessions share, and the first rate of a new session.
//!
//! The module `dispatch::share` divides a rate among the running sessions, but only every 200 ms. A
//! session may be shorter than that. So all sessions also draw on one [`SharedRate`] for each
//! configured bound, and a new session gets a first rate that applies until the next division.

use super::Moving;
use dray_config::{Config, Share};
use dray_link::pace::{SharedRate, SharedRates};
use std::sync::Arc;

#[derive(Debug, Clone)]
struct Bound {
    rate: u64,
    shared: Arc<SharedRate>,
}

impl Bound {
    fn new(rate: u64) -> Self {
        let shared = Arc::new(SharedRate::new(rate));
        Self { rate, shared }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

#[derive(Debug, Default)]
pub(super) struct Rates {
    endpoint: Option<Bound>,
    shares: Vec<(Share, Option<Bound>)>,
    roots: Vec<(String, Bound)>,
}

impl Rates {
    pub(super) fn of(config: &Config) -> Self {
        let shares = config.share.iter().map(|share| {
            let bound = share.rate_max.map(|rate| Bound::new(rate.0));
            (share.clone(), bound)
        });
        let roots = config.root.iter();
        let roots =
            roots.filter_map(|root| Some((root.name.to_string(), Bound::new(root.rate?.0))));
        Self {
            endpoint: config.rate.map(|rate| Bound::new(rate.0)),
            shares: shares.collect(),
            roots: roots.collect(),
        }
    }

    /// Returns the bounds that apply to a session.
    fn passed(&self, moving: &Moving) -> Vec<Bound> {
        let first = |is_meant: &dyn Fn(&Share) -> bool| {
            let mut shares = self.shares.iter();
            let found = shares.find(|(share, _)| is_meant(share));
            found.and_then(|(_, bound)| bound.clone())
        };
        let peer = first(&|share| share.is_of_peer(&moving.peer));
        let owner = first(&|share| share.owner.as_deref() == Some(moving.owner.as_str()));
        let roots = self.roots.iter();
        let roots = roots.filter(|(name, _)| moving.roots.contains(name));
        let above = [self.endpoint.clone(), peer, owner].into_iter().flatten();
        above.chain(roots.map(|(_, bound)| bound.clone())).collect()
    }

    /// Returns the shared rates that limit a session, and the session's first rate.
    ///
    /// For each bound of the session, the session can use the part that the sessions in `others` do
    /// not use, but at least an even share of the bound. The first rate is the smallest of these
    /// rates.
    pub(super) fn first<'a>(
        &self,
        moving: &Moving,
        others: impl Iterator<Item = &'a Moving>,
    ) -> (SharedRates, Option<u64>) {
        let bounds = self.passed(moving);
        let mut taken = vec![(0u64, 1u64); bounds.len()];
        if !bounds.is_empty() {
            for other in others.filter(|other| !other.is_still()) {
                for passed in self.passed(other) {
                    let same = bounds.iter().zip(&mut taken);
                    for (bound, (sum, count)) in same.filter(|(bound, _)| bound.is(&passed)) {
                        *sum = sum.saturating_add(other.granted().unwrap_or(bound.rate));
                        *count += 1;
                    }
                }
            }
        }
        let left = bounds.iter().zip(taken).map(|(bound, (sum, count))| {
            let even = (bound.rate / count).max(1);
            bound.rate.saturating_sub(sum).max(even)
        });
        let rate = left.chain(moving.wish().rate_max).min();
        let shared = bounds.into_iter().map(|bound| bound.shared).collect();
        (shared, rate)
    }
}

#[cfg(test)]
mod tests {
    use super::Rates;
    use crate::live::{Moving, Way};
    use dray_api::RateWish;
    use dray_config::Config;
    use dray_core::TransferId;

    const MEGA: u64 = 1_000_000;

    fn moving(owner: &str, peer: &str, root: &str) -> Moving {
        let transfer = TransferId::new("t").expect("an id");
        let mut moving = Moving::new(
            transfer,
            owner.to_owned(),
            peer.to_owned(),
            Way::In,
            RateWish::default(),
        );
        moving.roots = vec![root.to_owned()];
        moving
    }

    #[test]
    fn a_first_rate_is_what_others_leave_of_every_bound() {
        let text = "name = \"a.example\"\nstate = \"/s\"\n\
             [[share]]\nowner = \"alice\"\nrate_max = \"30MB/s\"\n\
             [[share]]\npeer = \"b.example\"\nrate_max = \"60MB/s\"\n\
             [[root]]\nname = \"slow\"\npath = \"/slow\"\nrate = \"20MB/s\"\n\
             [[root]]\nname = \"fast\"\npath = \"/fast\"\n";
        let rates = Rates::of(&Config::parse("test", text).expect("good"));
        let first = |moving: &Moving, others: &[Moving]| rates.first(moving, others.iter()).1;
        assert_eq!(first(&moving("bob", "c.example", "fast"), &[]), None);
        let one = moving("alice", "b.example:4810", "slow");
        assert_eq!(first(&one, &[]), Some(20 * MEGA));
        one.grant(Some(5 * MEGA));
        let others = [one];
        let slow = moving("bob", "c.example", "slow");
        assert_eq!(first(&slow, &others), Some(15 * MEGA));
        let fast = moving("alice", "c.example", "fast");
        assert_eq!(first(&fast, &others), Some(25 * MEGA));
        // The bound is fully used. The new session gets an even share, and the shared rate keeps
        // the sum within the bound.
        others[0].grant(Some(20 * MEGA));
        assert_eq!(first(&slow, &others), Some(10 * MEGA));
        // A held session uses no rate.
        others[0].hold(true);
        assert_eq!(first(&slow, &others), Some(20 * MEGA));
    }
}
