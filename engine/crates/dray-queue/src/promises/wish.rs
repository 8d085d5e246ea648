//! Converts a request to the broker's type `Wish`: the resources that the transfer uses, and the
//! amounts that it requests.

use super::settings::Settings;
use super::{LINK, due, time};
use dray_api::{AdmissionWord, Request, Route, Side};
use dray_core::rate::BytesPerSecond;
use dray_core::units::human;
use dray_sched::broker::{Broker, Config as BrokerConfig, ResourceId, TransferKey, Wish};

/// A request, with the facts that the broker needs about its transfer.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Number of the transfer in the order of submission.
    pub key: u64,
    /// The transfer's id.
    pub id: &'a str,
    /// The transfer's owner.
    pub owner: &'a str,
    /// The request.
    pub request: &'a Request,
    /// The parsed source and destination of the request.
    pub route: &'a Route,
    /// Index of the source that the transfer reads.
    pub source: u32,
    /// Size of the transfer in bytes, if it is known.
    pub bytes: Option<u64>,
    /// Number of durable bytes.
    pub done: u64,
}

/// An [`Ask`] that owns its fields, so that it can be kept.
#[derive(Debug, Clone)]
pub struct Asked {
    key: u64,
    id: String,
    owner: String,
    request: Request,
    route: Route,
    source: u32,
    bytes: Option<u64>,
    done: u64,
}

impl Asked {
    pub(super) fn ask(&self) -> Ask<'_> {
        Ask {
            key: self.key,
            id: &self.id,
            owner: &self.owner,
            request: &self.request,
            route: &self.route,
            source: self.source,
            bytes: self.bytes,
            done: self.done,
        }
    }
}

impl From<&Ask<'_>> for Asked {
    fn from(ask: &Ask<'_>) -> Self {
        Self {
            key: ask.key,
            id: ask.id.to_owned(),
            owner: ask.owner.to_owned(),
            request: ask.request.clone(),
            route: ask.route.clone(),
            source: ask.source,
            bytes: ask.bytes,
            done: ask.done,
        }
    }
}

/// Returns true if a request asks for a deadline or a rate.
#[must_use]
pub const fn asks_promise(request: &Request) -> bool {
    request.deadline.is_some() || request.rate_min.is_some()
}

impl Ask<'_> {
    /// Returns true if the request asks for a deadline or a rate.
    #[must_use]
    pub const fn wants(&self) -> bool {
        asks_promise(self.request)
    }

    /// Returns true if the request is admitted even if it gets no promise.
    #[must_use]
    pub fn is_best_effort(&self) -> bool {
        self.request.admission == Some(AdmissionWord::BestEffort)
    }
}

/// A resource: its name, its description and its capacity.
#[derive(Debug, Clone)]
struct Resource {
    /// `link`, `root:NAME`, `tier:NAME`, `peer:NAME` or `owner:NAME`.
    name: String,
    words: String,
    ceiling: Option<u64>,
}

/// Returns the name of the resource that all transfers of an owner pass.
fn owners(owner: &str) -> String {
    format!("owner:{owner}")
}

/// The resources of this endpoint, whose capacity is divided among promises.
#[derive(Debug, Clone)]
pub(super) struct Resources {
    settings: Settings,
    places: Vec<Resource>,
}

impl Resources {
    pub(super) fn new(settings: &Settings) -> Self {
        // Promise only the rate of the link less the minimum rates of all shares. The minimum rate
        // of a share must be free when a transfer of its owner or peer arrives.
        let owed: u64 = (settings.shares.iter())
            .filter_map(|share| share.rate_min)
            .fold(0, |sum, rate| sum.saturating_add(rate));
        let link = settings.rate.map(|rate| rate.saturating_sub(owed).max(1));
        let mut places = vec![Resource {
            name: "link".to_owned(),
            words: "the endpoint's rate".to_owned(),
            ceiling: link,
        }];
        for root in &settings.roots {
            places.push(Resource {
                name: format!("root:{}", root.name),
                words: format!("the rate of the root {}", root.name),
                ceiling: root.rate,
            });
        }
        for tier in &settings.tiers {
            places.push(Resource {
                name: format!("tier:{}", tier.name),
                words: format!("the rate between the roots of the tier {}", tier.name),
                ceiling: Some(tier.rate),
            });
        }
        for share in &settings.shares {
            let Some(rate) = share.rate_max else { continue };
            let (name, words) = match (&share.peer, &share.owner) {
                (Some(peer), _) => (
                    format!("peer:{peer}"),
                    format!("the rate to and from {peer}"),
                ),
                (None, Some(owner)) => (owners(owner), format!("the share of {owner}")),
                (None, None) => continue,
            };
            places.push(Resource {
                name,
                words,
                ceiling: Some(rate),
            });
        }
        Self {
            settings: settings.clone(),
            places,
        }
    }

    /// Returns true if the endpoint measures its rate, because no rate is configured.
    pub(super) const fn is_measured(&self) -> bool {
        self.settings.rate.is_none()
    }

    /// Creates a broker with these resources.
    pub(super) fn broker(&self) -> Broker {
        let mut broker = Broker::new(BrokerConfig {
            transfers_max: usize::try_from(self.settings.transfers_max).unwrap_or(usize::MAX),
            ..BrokerConfig::default()
        });
        for (id, place) in (0..).zip(&self.places) {
            broker.set_resource(ResourceId(id), place.ceiling.map(BytesPerSecond));
        }
        broker
    }

    fn find(&self, name: &str) -> Option<ResourceId> {
        let at = self.places.iter().position(|place| place.name == name)?;
        u32::try_from(at).ok().map(ResourceId)
    }

    /// Returns the ids of the named resources. Resources that no longer exist are left out.
    pub(super) fn ids(&self, names: &[String]) -> Vec<ResourceId> {
        names.iter().filter_map(|name| self.find(name)).collect()
    }

    pub(super) fn names(&self, ids: &[ResourceId]) -> Vec<String> {
        ids.iter().map(|id| self.name(*id).to_owned()).collect()
    }

    pub(super) fn name(&self, id: ResourceId) -> &str {
        let place = self.places.get(id.0 as usize);
        place.map_or("", |place| place.name.as_str())
    }

    /// Returns a description of a resource and its capacity for a message.
    pub(super) fn words(&self, id: ResourceId) -> String {
        match self.places.get(id.0 as usize) {
            Some(place) => match place.ceiling {
                Some(rate) => format!("{} ({}/s)", place.words, human(rate)),
                None => place.words.clone(),
            },
            None => "a resource that this endpoint no longer knows".to_owned(),
        }
    }

    /// Returns the resource that all bytes of an owner use, if the owner has a share.
    pub(super) fn of_owner(&self, owner: &str) -> Option<ResourceId> {
        self.find(&owners(owner))
    }

    /// Returns the resources of this endpoint that the bytes of an owner's transfer use.
    fn passes(&self, owner: &str, route: &Route, source: u32) -> Vec<ResourceId> {
        let mut passed = vec![LINK];
        passed.extend(self.of_owner(owner));
        for side in route.ends(source as usize) {
            let found = match side {
                Side::Local(path) => self.find(&format!("root:{}", path.root)),
                Side::Remote { address, .. } => {
                    let share = self.settings.share_of_peer(address);
                    let peer = share.and_then(|share| share.peer.as_deref());
                    peer.and_then(|peer| self.find(&format!("peer:{peer}")))
                }
            };
            passed.extend(found.filter(|id| !passed.contains(id)));
        }
        passed.extend(self.of_tier(route, source));
        passed
    }

    /// Returns the resource of the tier between whose roots a transfer copies.
    fn of_tier(&self, route: &Route, source: u32) -> Option<ResourceId> {
        let mut ends = route.ends(source as usize);
        let (Some(Side::Local(from)), Some(Side::Local(to))) = (ends.next(), ends.next()) else {
            return None;
        };
        let mut tiers = self.settings.tiers.iter();
        let tier = tiers.find(|tier| tier.is_between(&from.root, &to.root))?;
        self.find(&format!("tier:{}", tier.name))
    }

    pub(super) fn wish(&self, ask: &Ask<'_>) -> Wish {
        let request = ask.request;
        let resources = self.passes(ask.owner, ask.route, ask.source);
        let share = self.settings.share_of_owner(ask.owner);
        let mut wish = Wish::new(TransferKey(ask.key), 0, &resources);
        wish.class = request.class();
        ask.owner.clone_into(&mut wish.owner);
        wish.owner_weight = share.map_or(wish.owner_weight, |share| share.weight);
        wish.weight = request.weight;
        wish.bytes = ask.bytes.map(|bytes| bytes.saturating_sub(ask.done));
        wish.deadline = request.deadline.map(due);
        wish.not_before = request.not_before.map(time);
        wish.floor = BytesPerSecond(request.rate_min.unwrap_or(0));
        wish.ceiling = request.rate_max.map(BytesPerSecond);
        wish
    }

    /// Returns a text that names the facts that are missing for a promise.
    pub(super) fn why_unpromised(
        &self,
        ask: &Ask<'_>,
        wish: &Wish,
        broker: &Broker,
    ) -> Vec<String> {
        let mut reasons = Vec::new();
        let is_known = |id: &ResourceId| {
            broker
                .capacity(*id)
                .is_some_and(|of| of.present().is_some())
        };
        if !wish.resources.iter().any(is_known) {
            let names: Vec<String> = wish.resources.iter().map(|id| self.words(*id)).collect();
            reasons.push(format!(
                "not promised: no rate that limits the transfer is known yet ({}); set `rate` in \
                    the endpoint's configuration",
                names.join(", ")
            ));
        }
        if ask.bytes.is_none() && wish.floor.0 == 0 {
            let cause = "not promised yet: the size of the transfer is unknown until the files \
                are listed; give the size as `bytes_expected` (dray cp: --bytes) to get a \
                promise earlier";
            reasons.push(cause.to_owned());
        }
        reasons
    }
}
