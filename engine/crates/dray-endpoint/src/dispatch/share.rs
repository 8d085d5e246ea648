//! Divides the endpoint's rate in a tree: endpoint, peer, owner, transfer. Planned rates and floors
//! are served first. The remaining rate is divided by class and weight. dray-sched computes the
//! division, and this module builds the tree.

use crate::dispatch::notes::Notes;
use crate::dispatch::rate_limits::Granted;
use crate::live::{Live, Moving};
use dray_api::RateWish;
use dray_api::Timestamp;
use dray_api::{Event, EventKind, PlannedRate};
use dray_config::Config;
use dray_core::Time;
use dray_core::rate::{BytesPerSecond, Class};
use dray_link::clock::Clock;
use dray_queue::Queue;
use dray_queue::clock;
use dray_queue::promises::{Report, Round, SessionProgress};
use dray_sched::shares::{Demand, NodeId, Share, Tree};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Weights of the classes realtime, deadline and background in the division of spare rate. The
/// broker uses the same weights. The realtime class gets nearly all of the spare rate.
const CLASS_WEIGHTS: (u32, u32, u32) = (512, 8, 1);

/// Maximum number of sent bytes that count as done before they are durable. The bound is needed
/// because a source may send a range twice, and then sends more bytes than become durable. The
/// value is the maximum size of a sync group: a group has at most this many bytes that are not
/// durable.
const ON_THE_WAY_MAX: u64 = 64 << 20;

/// Number of iterations per round that adjust the rates of roots, of owners and of the endpoint to
/// each other.
const FITS: usize = 3;

/// The endpoint grants a measured capacity plus this fraction of it (1/4). Otherwise the endpoint
/// would never observe a higher capacity.
const PROBE_PART: u64 = 4;

/// The shares of one endpoint.
pub struct Shares {
    config: Arc<Config>,
    live: Live,
    queue: Arc<Queue>,
    clock: Clock,
    /// The measured demand of each session, by session number.
    demands: HashMap<u64, Demand>,
    /// Notices about promises that transfers without a session will miss.
    notes: Notes,
}

/// Key of an owner's node in the tree: the other endpoint, and the owner.
type PeerAndOwner = (String, String);

/// A bound on a group of sessions that do not share one branch of the tree.
#[derive(Debug, Clone, Copy)]
enum Across<'a> {
    Root(&'a str),
    /// All sessions of an owner, with any peer.
    Owner(&'a str),
}

impl Across<'_> {
    fn is_passed_by(self, moving: &Moving) -> bool {
        match self {
            Self::Root(name) => moving.roots.iter().any(|root| root == name),
            Self::Owner(name) => moving.owner.as_str() == name,
        }
    }
}

impl Shares {
    /// Creates the shares. No rate is granted before the first round.
    #[must_use]
    pub fn new(config: Arc<Config>, live: Live, queue: Arc<Queue>) -> Self {
        Self {
            config,
            live,
            clock: Clock::start(),
            demands: HashMap::new(),
            notes: Notes::new(Arc::clone(&queue)),
            queue,
        }
    }

    /// Runs one round, and returns the number of sessions. Must be called every 200 ms.
    pub fn round(&mut self) -> i64 {
        let count = i64::try_from(self.live.all().len()).unwrap_or(i64::MAX);
        let all = self.live.flowing();
        self.take_wishes(&all);
        let wants = self.demands(&all);
        let look = self.look(&all, &wants);
        let rates = match self.is_bounded(&all, &look) {
            true => self.fitted(&all, &wants, &look),
            // No bound applies to the sessions, so no session gets a limit.
            false => vec![None; all.len()],
        };
        let granted = Granted::new(&self.config, &all, &rates, look.link);
        for (moving, rate) in all.iter().zip(rates.iter().copied()) {
            if moving.is_own {
                let limit = granted.limit_of(moving, rate);
                self.queue.granted(&moving.transfer, rate, limit);
            }
            moving.grant(rate);
        }
        self.notes.write(self.clock.now());
        count
    }

    fn is_bounded(&self, all: &[Arc<Moving>], look: &Round) -> bool {
        let is_bound = |moving: &Arc<Moving>| {
            let wish = moving.wish();
            wish.rate_max.is_some() || wish.rate_min.is_some()
        };
        let config = &self.config;
        config.rate.is_some()
            || !config.share.is_empty()
            || config.root.iter().any(|root| root.rate.is_some())
            || !look.planned.is_empty()
            || all.iter().any(is_bound)
    }

    /// Plans the promises again with the progress of the sessions, and reports the resulting
    /// events. `wants` has the rate that each session can use.
    fn look(&mut self, all: &[Arc<Moving>], wants: &[Option<BytesPerSecond>]) -> Round {
        let seen = all.iter().zip(wants).map(|(moving, wants)| {
            let own = moving.is_own.then(|| moving.transfer.as_str());
            let counted = own.and_then(|_| self.queue.counted(&moving.transfer));
            let counted = counted.unwrap_or_default();
            let bytes = counted.bytes;
            let sent = bytes.resumed.saturating_add(bytes.sent);
            let on_the_way = sent.saturating_sub(bytes.durable).min(ON_THE_WAY_MAX);
            SessionProgress {
                session: moving.number(),
                own,
                moved: moving.moved(),
                done: bytes.durable.saturating_add(on_the_way),
                listed: counted.files.listing_done.then_some(bytes.listed),
                is_hungry: wants.is_none(),
                granted: moving.granted(),
            }
        });
        let seen: Vec<SessionProgress<'_>> = seen.collect();
        let now = clock::now();
        let look = self.queue.promises().replan(&seen, now);
        for told in &look.told {
            self.tell(told, now);
        }
        if look.has_begun {
            self.queue.wake();
        }
        look
    }

    fn tell(&mut self, told: &Report, now: Timestamp) {
        match told {
            Report::Rate {
                id,
                owner,
                old,
                new,
                reason,
            } => {
                let event = Event {
                    transfer: Some(id.clone()),
                    planned: Some(PlannedRate {
                        old: *old,
                        new: *new,
                        reason: *reason,
                    }),
                    ..Event::new(EventKind::Planned, now)
                };
                let owner = Some(owner.as_str().into());
                self.queue.hub().publish(owner, event);
            }
            Report::Miss { id, owner, miss } => {
                let notice = match miss {
                    Some(miss) => {
                        let when = match miss.earliest_finish {
                            Some(earliest) => format!("the earliest possible end is {earliest}"),
                            None => "the end of the transfer cannot be estimated".to_owned(),
                        };
                        format!(
                            "the promise of the transfer will be missed: {}; {when}",
                            miss.cause
                        )
                    }
                    None => "the promise of the transfer is now expected to be kept".to_owned(),
                };
                tracing::warn!(transfer = %id, "{notice}");
                let is_noted = self.queue.foretold(id, owner, &notice, miss.clone());
                if !is_noted {
                    self.notes.push((id.clone(), notice));
                }
            }
        }
    }

    /// Returns the rate of each session. For every root and every owner, the sum of the rates stays
    /// within the configured rate.
    fn fitted(
        &self,
        all: &[Arc<Moving>],
        wants: &[Option<BytesPerSecond>],
        look: &Round,
    ) -> Vec<Option<u64>> {
        let planned: Vec<u64> = (all.iter())
            .map(|moving| look.planned.get(&moving.number()).copied().unwrap_or(0))
            .collect();
        let roots = self.config.root.iter();
        let roots = roots.filter_map(|root| Some((Across::Root(root.name.as_str()), root.rate?.0)));
        let owners = self.config.share.iter().filter_map(|share| {
            let owner = share.owner.as_deref()?;
            Some((Across::Owner(owner), share.rate_max?.0))
        });
        let across: Vec<(Across<'_>, u64)> = roots.chain(owners).collect();
        let mut rates = self.given(all, wants, &planned, look.link);
        if across.is_empty() {
            return rates;
        }
        for _ in 0..FITS {
            let mut bounds = wants.to_vec();
            for (across, rate) in &across {
                bound_across((*across, *rate), all, &rates, &planned, &mut bounds);
            }
            rates = self.given(all, &bounds, &planned, look.link);
        }
        rates
    }

    /// Returns the rate that a tree of shares gives to each session. The tree has no bounds of
    /// roots and owners. `wants` has the rate that each session can use.
    fn given(
        &self,
        all: &[Arc<Moving>],
        wants: &[Option<BytesPerSecond>],
        planned: &[u64],
        link: Option<u64>,
    ) -> Vec<Option<u64>> {
        let probed = link.map(|rate| rate.saturating_add(rate / PROBE_PART));
        let capacity = self.config.rate.map(|rate| rate.0).or(probed);
        let mut tree = Tree::new(capacity.map(BytesPerSecond));
        let mut peers: BTreeMap<String, NodeId> = BTreeMap::new();
        let mut owners: BTreeMap<PeerAndOwner, NodeId> = BTreeMap::new();
        let shares = self.leaves(all, wants, planned, capacity);
        let mut leaves = Vec::with_capacity(all.len());
        for ((moving, share), wants) in all.iter().zip(shares).zip(wants) {
            let is_peer = |other: &Moving| other.peer == moving.peer;
            let is_owner = |other: &Moving| is_peer(other) && other.owner == moving.owner;
            let peer = *peers.entry(moving.peer.clone()).or_insert_with(|| {
                let root = tree.root();
                let share = configured(self.config.share_of_peer(&moving.peer));
                tree.add(root, by_class(share, all, is_peer))
            });
            let place = (moving.peer.clone(), moving.owner.clone());
            let owner = *owners.entry(place).or_insert_with(|| {
                let share = configured(self.config.share_of_owner(&moving.owner));
                tree.add(peer, by_class(share, all, is_owner))
            });
            leaves.push(tree.add_leaf(owner, share, *wants));
        }
        let grants = tree.allocate();
        let rates = leaves.into_iter();
        rates
            .map(|leaf| grants.rate(leaf).map(|rate| rate.0))
            .collect()
    }

    /// Returns the share of each session. The floor of a share is the guaranteed rate of the
    /// session. The planned rates and the configured minimum rates are reserved first. Realtime
    /// sessions then get equal parts of the remaining rate, but not more than they can use. The
    /// floors of other sessions without a promise come last, and are reduced in proportion if their
    /// sum exceeds the rate that is left.
    fn leaves(
        &self,
        all: &[Arc<Moving>],
        wants: &[Option<BytesPerSecond>],
        planned: &[u64],
        capacity: Option<u64>,
    ) -> Vec<Share> {
        let owed: u64 = planned
            .iter()
            .fold(0, |sum, rate| sum.saturating_add(*rate));
        let owed = owed.saturating_add(
            (self.config.share.iter())
                .filter_map(|share| share.rate_min)
                .fold(0, |sum, rate| sum.saturating_add(rate.0)),
        );
        let mut left = capacity.map(|capacity| capacity.saturating_sub(owed));
        let shares = all.iter().map(|moving| share(moving.wish()));
        let mut shares: Vec<Share> = shares.collect();
        let urgent: Vec<usize> = (0..all.len())
            .filter(|at| all[*at].wish().class == Class::Realtime)
            .collect();
        let mut waiting = urgent.len() as u64;
        for at in urgent {
            let part = left.map_or(0, |left| left / waiting.max(1));
            let floor = wants[at].map_or(part, |wants| part.min(wants.0));
            waiting -= 1;
            left = left.map(|left| left - floor);
            shares[at].floor = shares[at].floor.max(BytesPerSecond(floor));
        }
        let asked: u64 = (shares.iter().zip(planned).zip(all))
            .filter(|((_, planned), moving)| {
                **planned == 0 && moving.wish().class != Class::Realtime
            })
            .fold(0, |sum, ((share, _), _)| sum.saturating_add(share.floor.0));
        for ((share, planned), moving) in shares.iter_mut().zip(planned).zip(all) {
            if *planned > 0 {
                share.floor = BytesPerSecond((*planned).max(match moving.wish().class {
                    Class::Realtime => share.floor.0,
                    Class::Deadline | Class::Background => 0,
                }));
            } else if let Some(left) = left.filter(|left| asked > *left)
                && moving.wish().class != Class::Realtime
            {
                let floor = u128::from(share.floor.0) * u128::from(left) / u128::from(asked.max(1));
                share.floor = BytesPerSecond(u64::try_from(floor).unwrap_or(0));
            }
        }
        shares
    }

    /// Reads the rates that callers have changed since the last round.
    fn take_wishes(&self, all: &[Arc<Moving>]) {
        let changed = all
            .iter()
            .filter(|moving| moving.is_own && moving.take_changed());
        for moving in changed {
            match self.queue.request(&moving.transfer) {
                Ok(Some(request)) => moving.set_wish(RateWish {
                    weight: request.weight,
                    rate_min: request.rate_min,
                    rate_max: request.rate_max,
                    class: request.class(),
                }),
                Ok(None) => {}
                // Marked as changed again, so that the next round retries the read.
                Err(_) => moving.changed(),
            }
        }
    }

    /// Returns the rate that each session can use. `None` means that the session uses all that it
    /// is granted.
    fn demands(&mut self, all: &[Arc<Moving>]) -> Vec<Option<BytesPerSecond>> {
        let now = self.clock.now();
        let mut kept = HashMap::new();
        let wants = all
            .iter()
            .map(|moving| self.demand(&mut kept, moving, now))
            .collect();
        self.demands = kept;
        wants
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

/// Lowers the usable rates of the sessions that use one root, or that belong to one owner. The sum
/// of these rates then stays within `rate`, the rate limit of that root or owner. If another limit
/// keeps a session below its share of `rate`, the other sessions get the rest of that share.
fn bound_across(
    (across, rate): (Across<'_>, u64),
    all: &[Arc<Moving>],
    rates: &[Option<u64>],
    planned: &[u64],
    bounds: &mut [Option<BytesPerSecond>],
) {
    let here = (0..all.len()).filter(|at| across.is_passed_by(&all[*at]));
    let here: Vec<usize> = here.collect();
    let mut tree = Tree::new(Some(BytesPerSecond(rate)));
    let root = tree.root();
    let leaves: Vec<NodeId> = (here.iter())
        .map(|at| {
            let share = Share {
                weight: all[*at].wish().weight * class_weight(all[*at].wish().class),
                floor: BytesPerSecond(planned[*at]),
                cap: all[*at].wish().rate_max.map(BytesPerSecond),
            };
            let most = [bounds[*at].map(|rate| rate.0), rates[*at]];
            let most = most.into_iter().flatten().min();
            tree.add_leaf(root, share, most.map(BytesPerSecond))
        })
        .collect();
    let grants = tree.allocate();
    for (at, leaf) in here.into_iter().zip(leaves) {
        if let Some(rate) = grants.rate(leaf) {
            bounds[at] = Some(bounds[at].map_or(rate, |bound| bound.min(rate)));
        }
    }
}

const fn class_weight(class: Class) -> u32 {
    match class {
        Class::Realtime => CLASS_WEIGHTS.0,
        Class::Deadline => CLASS_WEIGHTS.1,
        Class::Background => CLASS_WEIGHTS.2,
    }
}

/// Multiplies the weight of a node by the class weight of the best class below the node.
fn by_class(share: Share, all: &[Arc<Moving>], is_below: impl Fn(&Moving) -> bool) -> Share {
    let below = all.iter().filter(|moving| is_below(moving));
    let weight = below.map(|moving| class_weight(moving.wish().class)).max();
    Share {
        weight: share.weight.saturating_mul(weight.unwrap_or(1)),
        ..share
    }
}

/// Returns the share that the configuration gives to a peer or an owner.
fn configured(share: Option<&dray_config::Share>) -> Share {
    let Some(share) = share else {
        return Share::default();
    };
    Share {
        weight: share.weight,
        floor: BytesPerSecond(share.rate_min.map_or(0, |rate| rate.0)),
        cap: share.rate_max.map(|rate| BytesPerSecond(rate.0)),
    }
}

fn share(wish: RateWish) -> Share {
    Share {
        weight: wish.weight.saturating_mul(class_weight(wish.class)),
        floor: BytesPerSecond(wish.rate_min.unwrap_or(0)),
        cap: wish.rate_max.map(BytesPerSecond),
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;
    use crate::live::{Bounds, Live, Moving, Way};
    use crate::queue_settings::queue_settings;
    use dray_api::RateWish;
    use dray_config::Config;
    use dray_core::TransferId;
    use dray_queue::Queue;
    use dray_queue::clock;
    use dray_queue::events::Hub;
    use dray_queue::promises::Round;
    use std::sync::Arc;

    const MEGA: u64 = 1_000_000;

    fn shares(state: &std::path::Path, live: &Live) -> Shares {
        let text = format!(
            "name = \"a.example\"\nstate = {state:?}\nrate = \"1GB/s\"\n\
             [[share]]\nowner = \"alice\"\nrate_max = \"100MB/s\"\n\
             [[root]]\nname = \"data\"\npath = \"/data\"\n"
        );
        let config = Config::parse("test", &text).expect("good");
        let queue = Queue::open(queue_settings(&config), Arc::new(Hub::new(4, clock::now())))
            .expect("opened");
        Shares::new(Arc::new(config), live.clone(), queue)
    }

    #[test]
    fn the_rate_limit_of_an_owner_covers_all_peers() {
        let live = Live::new(Bounds {
            memory: 1 << 30,
            sessions: 4,
            per_owner: 4,
            own: 4,
            own_of_owner: 4,
        });
        let folder = tempfile::tempdir().expect("a folder");
        let shares = shares(folder.path(), &live);
        let enter = |id: &str, owner: &str, peer: &str| {
            let id = TransferId::new(id).expect("good");
            let moving = Moving::new(id, owner.into(), peer.into(), Way::In, RateWish::default());
            live.enter(moving).expect("a free slot")
        };
        let slots = [
            enter("one", "alice", "b.example"),
            enter("two", "alice", "c.example"),
            enter("three", "bob", "c.example"),
        ];
        let all: Vec<_> = slots.iter().map(|slot| Arc::clone(&slot.moving)).collect();
        let rates = shares.fitted(&all, &[None; 3], &Round::default());
        let rates: Vec<u64> = rates
            .into_iter()
            .map(|rate| rate.expect("bounded"))
            .collect();
        assert_eq!(rates[0] + rates[1], 100 * MEGA, "{rates:?}");
        assert_eq!(rates[2], 900 * MEGA, "{rates:?}");
    }
}
