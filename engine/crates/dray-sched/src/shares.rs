//! Who gets which rate: endpoint -> peer -> owner -> transfer, or any other tree.
//!
//! Floors come first, the rest goes by weight, level by level; nobody gets more than they can use,
//! and nothing is idle that somebody could use (weighted max-min fairness: Bertsekas and Gallager,
//! Data Networks, section 6.5.2; shares in a tree: Floyd and Jacobson, Link-sharing, 1995).
//!
//! What a leaf can use is known only by watching it: [`Demand`].

mod demand;

pub use demand::Demand;

use dray_core::rate::BytesPerSecond;

/// Weight of a node for which none was given.
pub const WEIGHT_DEFAULT: u32 = 100;

/// What one node is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its part of what is left after all floors, against its siblings'. Zero counts as one.
    pub weight: u32,
    /// What it gets before anybody gets more than their floor, as far as it can use it.
    pub floor: BytesPerSecond,
    /// What it never gets more than.
    pub cap: Option<BytesPerSecond>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            weight: WEIGHT_DEFAULT,
            floor: BytesPerSecond(0),
            cap: None,
        }
    }
}

/// A node of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(usize);

#[derive(Debug, Clone)]
struct Node {
    parent: usize,
    share: Share,
    /// What it can use at the most; of a node with children, what they can.
    use_max: u64,
    is_leaf: bool,
}

/// Who stands below whom. Made anew for each round of shares.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: Vec<Node>,
}

/// Rates stand in 64 bits; the largest stands for "no bound", and sums stop there.
const NO_BOUND: u64 = u64::MAX;

impl Tree {
    /// A tree of a root alone. `capacity` is what there is to give; `None` for no bound.
    #[must_use]
    pub fn new(capacity: Option<BytesPerSecond>) -> Self {
        let share = Share {
            cap: capacity,
            ..Share::default()
        };
        Self {
            nodes: vec![Node {
                parent: 0,
                share,
                use_max: 0,
                is_leaf: false,
            }],
        }
    }

    /// The root.
    #[must_use]
    pub const fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// Adds a node that gives to others.
    ///
    /// # Panics
    /// When `parent` is a leaf, or of another tree.
    pub fn add(&mut self, parent: NodeId, share: Share) -> NodeId {
        self.push(parent, share, false, 0)
    }

    /// Adds a node that uses. `demand` is what it can use; `None` for as much as it gets.
    ///
    /// # Panics
    /// When `parent` is a leaf, or of another tree.
    pub fn add_leaf(
        &mut self,
        parent: NodeId,
        share: Share,
        demand: Option<BytesPerSecond>,
    ) -> NodeId {
        let demand = demand.map_or(NO_BOUND, |rate| rate.0);
        self.push(parent, share, true, demand)
    }

    fn push(&mut self, parent: NodeId, share: Share, is_leaf: bool, use_max: u64) -> NodeId {
        assert!(!self.nodes[parent.0].is_leaf, "nothing stands below a leaf");
        self.nodes.push(Node {
            parent: parent.0,
            share,
            use_max,
            is_leaf,
        });
        NodeId(self.nodes.len() - 1)
    }

    /// Gives out the rates, exact to one byte per second in each node; the same tree gives the same
    /// rates. O(n log n) of its nodes.
    #[must_use]
    pub fn allocate(&self) -> Grants {
        let count = self.nodes.len();
        let mut uses: Vec<u64> = self.nodes.iter().map(|node| node.use_max).collect();
        let mut floors: Vec<u64> = vec![0; count];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); count];
        // A child stands behind its parent: backwards is from the leaves up.
        for index in (0..count).rev() {
            let node = &self.nodes[index];
            let cap = node.share.cap.map_or(NO_BOUND, |rate| rate.0);
            uses[index] = uses[index].min(cap);
            floors[index] = floors[index].max(node.share.floor.0).min(uses[index]);
            if index > 0 {
                let parent = node.parent;
                uses[parent] = uses[parent].saturating_add(uses[index]);
                floors[parent] = floors[parent].saturating_add(floors[index]);
                children[parent].push(index);
            }
        }
        let mut rates = vec![0; count];
        rates[0] = uses[0];
        for index in 0..count {
            // Collected from the back.
            children[index].reverse();
            let below: Vec<Claim> = children[index]
                .iter()
                .map(|&child| Claim {
                    node: child,
                    weight: u64::from(self.nodes[child].share.weight.max(1)),
                    floor: floors[child],
                    use_max: uses[child],
                })
                .collect();
            divide(rates[index], &below, &mut rates);
        }
        let missing = (0..count)
            .map(|index| {
                let owed = self.nodes[index].share.floor.0.min(uses[index]);
                owed.saturating_sub(rates[index])
            })
            .collect();
        Grants { rates, missing }
    }
}

/// What a child asks of its parent.
struct Claim {
    node: usize,
    weight: u64,
    floor: u64,
    use_max: u64,
}

/// Divides an amount among siblings.
fn divide(amount: u64, claims: &[Claim], rates: &mut [u64]) {
    let sum = |part: fn(&Claim) -> u64| {
        (claims.iter()).fold(0u64, |sum, claim| sum.saturating_add(part(claim)))
    };
    if amount >= sum(|claim| claim.use_max) {
        for claim in claims {
            rates[claim.node] = claim.use_max;
        }
        return;
    }
    let floors: u128 = claims.iter().map(|claim| u128::from(claim.floor)).sum();
    if floors > u128::from(amount) {
        shrink(amount, floors, claims, rates);
        return;
    }
    // Fits: no more than the amount.
    let mut left = amount - u64::try_from(floors).unwrap_or(amount);
    let room = |claim: &Claim| claim.use_max - claim.floor;
    let mut weights: u128 = claims.iter().map(|claim| u128::from(claim.weight)).sum();
    // Those who are content with the least, for their weight, are served in full first.
    let mut order: Vec<&Claim> = claims.iter().collect();
    order.sort_by(|one, other| {
        let scaled = |this: &Claim, that: &Claim| u128::from(room(this)) * u128::from(that.weight);
        scaled(one, other)
            .cmp(&scaled(other, one))
            .then(one.node.cmp(&other.node))
    });
    let mut full = 0;
    for claim in &order {
        let fair = u128::from(left) * u128::from(claim.weight);
        if u128::from(room(claim)) * weights > fair {
            break;
        }
        rates[claim.node] = claim.use_max;
        left -= room(claim);
        weights -= u128::from(claim.weight);
        full += 1;
    }
    let mut rest: Vec<&Claim> = order.split_off(full);
    rest.sort_by_key(|claim| claim.node);
    let mut spread = 0;
    for claim in &rest {
        let part = u128::from(left) * u128::from(claim.weight) / weights.max(1);
        let part = u64::try_from(part).unwrap_or(left);
        rates[claim.node] = claim.floor + part;
        spread += part;
    }
    // What rounding left, fewer bytes than there are siblings, one each.
    for claim in rest
        .iter()
        .take(usize::try_from(left - spread).unwrap_or(0))
    {
        rates[claim.node] += 1;
    }
}

/// Floors that together are too much are held in proportion.
fn shrink(amount: u64, floors: u128, claims: &[Claim], rates: &mut [u64]) {
    let mut spread = 0;
    for claim in claims {
        let part = u128::from(claim.floor) * u128::from(amount) / floors;
        rates[claim.node] = u64::try_from(part).unwrap_or(claim.floor);
        spread += rates[claim.node];
    }
    let with_floor = claims.iter().filter(|claim| claim.floor > 0);
    for claim in with_floor.take(usize::try_from(amount - spread).unwrap_or(0)) {
        rates[claim.node] += 1;
    }
}

/// The rates of one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    rates: Vec<u64>,
    missing: Vec<u64>,
}

impl Grants {
    /// The rate of a node; `None` for no bound.
    #[must_use]
    pub fn rate(&self, node: NodeId) -> Option<BytesPerSecond> {
        let rate = self.rates[node.0];
        (rate != NO_BOUND).then_some(BytesPerSecond(rate))
    }

    /// How far a node stays below its floor, or below as much of it as it can use. The floors of
    /// siblings that are too much together shrink in proportion.
    #[must_use]
    pub fn missing(&self, node: NodeId) -> BytesPerSecond {
        BytesPerSecond(self.missing[node.0])
    }

    /// Whether some floor is not held.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.missing.iter().any(|missing| *missing > 0)
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
