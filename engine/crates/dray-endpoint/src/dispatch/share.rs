//! Gives out the endpoint's rate: endpoint -> peer -> owner -> transfer, floors first, the rest by
//! weight (dray-sched decides; here is who stands where).

use crate::config::Config;
use crate::live::{Live, Moving, Wish};
use crate::queue::Queue;
use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use dray_runtime::clock::Clock;
use dray_sched::shares::{Demand, NodeId, Share, Tree};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The shares of one endpoint.
pub struct Shares {
    config: Arc<Config>,
    live: Live,
    queue: Arc<Queue>,
    clock: Clock,
    /// By the number of the session.
    demands: HashMap<u64, Demand>,
}

/// A place in the tree: the other endpoint, then the owner.
type Place = (String, String);

impl Shares {
    /// Nobody has anything yet.
    #[must_use]
    pub fn new(config: Arc<Config>, live: Live, queue: Arc<Queue>) -> Self {
        Self {
            config,
            live,
            queue,
            clock: Clock::start(),
            demands: HashMap::new(),
        }
    }

    /// One round: to be called each 200 ms. Says how many sessions there are.
    pub fn round(&mut self) -> i64 {
        let all = self.live.all();
        let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
        self.take_wishes(&all);
        let now = self.clock.now();
        let mut demands = HashMap::new();
        let bounded = self.config.rate.is_some() || !self.config.share.is_empty();
        let is_bound = |moving: &Arc<Moving>| {
            let wish = moving.wish();
            wish.rate_max.is_some() || wish.rate_min.is_some()
        };
        if !bounded && !all.iter().any(is_bound) {
            // Nothing to share: no gate, no look.
            for moving in &all {
                if moving.granted().is_some() && moving.is_own {
                    self.queue.granted(&moving.transfer, None);
                }
                moving.grant(None);
            }
            self.demands.clear();
            return count;
        }
        let mut tree = Tree::new(self.config.rate.map(|rate| BytesPerSecond(rate.0)));
        let mut peers: BTreeMap<String, NodeId> = BTreeMap::new();
        let mut owners: BTreeMap<Place, NodeId> = BTreeMap::new();
        let mut leaves = Vec::with_capacity(all.len());
        for moving in &all {
            let peer = *peers.entry(moving.peer.clone()).or_insert_with(|| {
                let root = tree.root();
                tree.add(root, configured(self.config.share_of_peer(&moving.peer)))
            });
            let place = (moving.peer.clone(), moving.owner.clone());
            let owner = *owners.entry(place).or_insert_with(|| {
                tree.add(peer, configured(self.config.share_of_owner(&moving.owner)))
            });
            let demand = self.demand(&mut demands, moving, now);
            let leaf = tree.add_leaf(owner, share(moving.wish()), demand);
            leaves.push((moving, leaf));
        }
        let grants = tree.allocate();
        for (moving, leaf) in leaves {
            let rate = grants.rate(leaf).map(|rate| rate.0);
            moving.grant(rate);
            if moving.is_own {
                self.queue.granted(&moving.transfer, rate);
            }
        }
        self.demands = demands;
        count
    }

    /// What callers have changed since.
    fn take_wishes(&self, all: &[Arc<Moving>]) {
        let changed = all
            .iter()
            .filter(|moving| moving.is_own && moving.take_changed());
        for moving in changed {
            match self.queue.request(&moving.transfer) {
                Ok(Some(request)) => moving.set_wish(Wish {
                    weight: request.weight,
                    rate_min: request.rate_min,
                    rate_max: request.rate_max,
                }),
                Ok(None) => {}
                // Asked again in the next round.
                Err(_) => moving.changed(),
            }
        }
    }

    fn demand(
        &mut self,
        kept: &mut HashMap<u64, Demand>,
        moving: &Arc<Moving>,
        now: Time,
    ) -> Option<BytesPerSecond> {
        let key = moving.number();
        let mut demand = self
            .demands
            .remove(&key)
            .unwrap_or_else(|| Demand::new(moving.grain));
        let granted = moving.granted().map(BytesPerSecond);
        let wanted = demand.observe(now, granted, moving.moved());
        kept.insert(key, demand);
        wanted
    }
}

/// What the configuration gives a peer or an owner.
fn configured(share: Option<&crate::config::Share>) -> Share {
    let Some(share) = share else {
        return Share::default();
    };
    Share {
        weight: share.weight,
        floor: BytesPerSecond(share.rate_min.map_or(0, |rate| rate.0)),
        cap: share.rate_max.map(|rate| BytesPerSecond(rate.0)),
    }
}

fn share(wish: Wish) -> Share {
    Share {
        weight: wish.weight,
        floor: BytesPerSecond(wish.rate_min.unwrap_or(0)),
        cap: wish.rate_max.map(BytesPerSecond),
    }
}
