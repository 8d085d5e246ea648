//! Names the limit that determines the rate of a session, so that a user learns whose limit to
//! change.
//!
//! Invariant owned here: a named limit is used up. The module never names a limit that leaves the
//! session more rate.

use crate::live::Moving;
use dray_api::{RateLimitAnswer, RateLimitWord};
use dray_config::Config;
use std::collections::HashMap;
use std::sync::Arc;

/// A limit counts as used up if less than this fraction (1/50) of it is left. The rounds of shares
/// come close to a limit and rarely meet it exactly. The value is an estimate.
const LEFT_PART: u64 = 50;

const fn is_used_up(limit: u64, used: u64) -> bool {
    used >= limit - limit / LEFT_PART
}

/// The rates that one round grants, summed over the sessions of each root, owner and peer.
pub(super) struct Granted<'a> {
    config: &'a Config,
    /// Measured capacity of the network in bytes per second, if no rate is configured.
    link: Option<u64>,
    of_roots: HashMap<&'a str, u64>,
    of_owners: HashMap<&'a str, u64>,
    of_peers: HashMap<&'a str, u64>,
    whole: u64,
}

impl<'a> Granted<'a> {
    /// Computes the sums of one round. `rates` has the granted rate of each session.
    pub(super) fn new(
        config: &'a Config,
        all: &'a [Arc<Moving>],
        rates: &[Option<u64>],
        link: Option<u64>,
    ) -> Self {
        let mut granted = Self {
            config,
            link,
            of_roots: HashMap::new(),
            of_owners: HashMap::new(),
            of_peers: HashMap::new(),
            whole: 0,
        };
        for (moving, rate) in all.iter().zip(rates) {
            let Some(rate) = *rate else { continue };
            let add = |sum: &mut u64| *sum = sum.saturating_add(rate);
            add(&mut granted.whole);
            add(granted.of_owners.entry(&moving.owner).or_default());
            add(granted.of_peers.entry(&moving.peer).or_default());
            for (at, root) in moving.roots.iter().enumerate() {
                // A session that uses a root twice counts once.
                if !moving.roots[..at].contains(root) {
                    add(granted.of_roots.entry(root).or_default());
                }
            }
        }
        granted
    }

    /// Returns the limit that determines the rate of the session `moving`. `None` if the session
    /// has no granted rate, or if no single limit determines it. The smallest scope comes first: a
    /// user changes the limit of a request more easily than the limit of an endpoint.
    pub(super) fn limit_of(&self, moving: &Moving, rate: Option<u64>) -> Option<RateLimitAnswer> {
        let rate = rate?;
        let limit = |kind, name: Option<&str>, rate| RateLimitAnswer {
            kind,
            name: name.map(str::to_owned),
            rate,
        };
        if let Some(most) = moving
            .wish()
            .rate_max
            .filter(|most| is_used_up(*most, rate))
        {
            return Some(limit(RateLimitWord::Request, None, most));
        }
        let sum = |sums: &HashMap<&str, u64>, name: &str| sums.get(name).copied().unwrap_or(0);
        let roots = self.config.root.iter().filter_map(|root| {
            let name = root.name.as_str();
            let is_used = moving.roots.iter().any(|used| used == name);
            let most = root.rate.filter(|_| is_used)?.0;
            is_used_up(most, sum(&self.of_roots, name))
                .then(|| limit(RateLimitWord::Root, Some(name), most))
        });
        let owner = moving.owner.as_str();
        let of_owner = self.config.share_of_owner(owner).and_then(|share| {
            let most = share.rate_max?.0;
            is_used_up(most, sum(&self.of_owners, owner))
                .then(|| limit(RateLimitWord::Owner, Some(owner), most))
        });
        let peer = moving.peer.as_str();
        let of_peer = self.config.share_of_peer(peer).and_then(|share| {
            let most = share.rate_max?.0;
            is_used_up(most, sum(&self.of_peers, peer))
                .then(|| limit(RateLimitWord::Peer, Some(peer), most))
        });
        let whole = match (self.config.rate, self.link) {
            (Some(most), _) => Some((RateLimitWord::Endpoint, most.0)),
            (None, Some(most)) => Some((RateLimitWord::Link, most)),
            (None, None) => None,
        };
        let of_whole = whole
            .and_then(|(kind, most)| is_used_up(most, self.whole).then(|| limit(kind, None, most)));
        roots
            .min_by_key(|limit| limit.rate)
            .or(of_owner)
            .or(of_peer)
            .or(of_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::Granted;
    use crate::live::{Moving, Way};
    use dray_api::{RateLimitWord, RateWish};
    use dray_config::Config;
    use dray_core::TransferId;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn config() -> Config {
        let text = "name = \"a.example\"\nstate = \"/var/lib/dray\"\nrate = \"1000B/s\"\n\
             [[share]]\nowner = \"alice\"\nrate_max = \"500B/s\"\n\
             [[share]]\npeer = \"c.example\"\nrate_max = \"300B/s\"\n\
             [[root]]\nname = \"data\"\npath = \"/data\"\nrate = \"400B/s\"\n";
        Config::parse("test", text).expect("good")
    }

    fn moving(owner: &str, peer: &str, root: &str, rate_max: Option<u64>) -> Arc<Moving> {
        let id = TransferId::new("one").expect("good");
        let wish = RateWish {
            rate_max,
            ..RateWish::default()
        };
        let mut moving = Moving::new(id, owner.into(), peer.into(), Way::In, wish);
        moving.roots = vec![root.to_owned()];
        Arc::new(moving)
    }

    /// Returns the limit of the first session.
    fn found(sessions: &[(Arc<Moving>, Option<u64>)]) -> Option<(RateLimitWord, u64)> {
        let config = config();
        let all: Vec<_> = sessions
            .iter()
            .map(|(moving, _)| Arc::clone(moving))
            .collect();
        let rates: Vec<_> = sessions.iter().map(|(_, rate)| *rate).collect();
        let granted = Granted::new(&config, &all, &rates, None);
        let limit = granted.limit_of(&all[0], rates[0])?;
        Some((limit.kind, limit.rate))
    }

    #[test]
    fn each_kind_of_limit_is_named_only_if_it_is_used_up() {
        use RateLimitWord as W;
        let bob = |rate_max| moving("bob", "b.example", "other", rate_max);
        assert_eq!(found(&[(bob(Some(50)), Some(50))]), Some((W::Request, 50)));
        assert_eq!(found(&[(bob(Some(80)), Some(50))]), None);
        assert_eq!(found(&[(bob(None), None)]), None);
        let here = moving("bob", "b.example", "data", None);
        assert_eq!(
            found(&[(Arc::clone(&here), Some(396))]),
            Some((W::Root, 400))
        );
        assert_eq!(found(&[(Arc::clone(&here), Some(350))]), None);
        // Two sessions of the root share its rate.
        let both = [
            (here, Some(350)),
            (moving("eve", "d", "data", None), Some(50)),
        ];
        assert_eq!(found(&both), Some((W::Root, 400)));
        let alice = moving("alice", "b.example", "other", None);
        assert_eq!(found(&[(alice, Some(500))]), Some((W::Owner, 500)));
        let far = moving("bob", "c.example", "other", None);
        assert_eq!(found(&[(far, Some(300))]), Some((W::Peer, 300)));
        let busy = [(bob(None), Some(600)), (bob(None), Some(400))];
        assert_eq!(found(&busy), Some((W::Endpoint, 1000)));
    }

    #[test]
    fn a_round_with_many_sessions_computes_each_sum_once() {
        let all: Vec<_> = (0..20_000)
            .map(|at| moving("alice", &format!("p{at}"), "data", None))
            .collect();
        let rates = vec![Some(1); all.len()];
        let config = config();
        let begun = Instant::now();
        let granted = Granted::new(&config, &all, &rates, None);
        for moving in &all {
            let limit = granted.limit_of(moving, Some(1)).expect("a limit");
            assert_eq!(limit.kind, RateLimitWord::Root);
        }
        // A sum for each session would take a minute.
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
