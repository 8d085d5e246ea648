//! Divides a rate in a tree, for example endpoint -> peer -> owner -> transfer.
//!
//! At each level every node gets its floor first. The remaining rate is divided by weight. No node
//! gets more than it can use, and no capacity stays idle that a node could use. This is weighted
//! max-min fairness (Bertsekas and Gallager, Data Networks, section 6.5.2) in a tree of shares
//! (Floyd and Jacobson, Link-sharing, 1995).
//!
//! The rate that a leaf can use is known only by observation ([`Demand`]).

mod demand;

pub use demand::Demand;

use dray_core::rate::BytesPerSecond;

/// Weight of a node without a configured weight.
pub const WEIGHT_DEFAULT: u32 = 100;

/// Weight, floor and cap of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Weight among siblings, for the division of the capacity above all floors. Zero counts as
    /// one.
    pub weight: u32,
    /// Rate that the node gets before any sibling gets more than its floor. A node that cannot use
    /// its whole floor gets less.
    pub floor: BytesPerSecond,
    /// Maximum rate of the node.
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
    /// Maximum rate that the node can use. For an inner node, this is the sum over its children.
    use_max: u64,
    is_leaf: bool,
}

/// A tree of nodes. The caller builds a new tree each time it computes shares.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: Vec<Node>,
}

/// Value for "no limit". Sums of rates saturate at this value.
const NO_BOUND: u64 = u64::MAX;

impl Tree {
    /// Creates a tree with a root and no other nodes. `capacity` is the rate to divide. `None`
    /// means no limit.
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

    /// Returns the root.
    #[must_use]
    pub const fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// Adds an inner node, which divides its rate among its children.
    ///
    /// # Panics
    /// If `parent` is a leaf or belongs to another tree.
    pub fn add(&mut self, parent: NodeId, share: Share) -> NodeId {
        self.push(parent, share, false, 0)
    }

    /// Adds a leaf. `demand` is the maximum rate that the leaf can use. `None` means no limit.
    ///
    /// # Panics
    /// If `parent` is a leaf or belongs to another tree.
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
        assert!(
            !self.nodes[parent.0].is_leaf,
            "a leaf of the tree of shares cannot have children"
        );
        self.nodes.push(Node {
            parent: parent.0,
            share,
            use_max,
            is_leaf,
        });
        NodeId(self.nodes.len() - 1)
    }

    /// Computes the rates of all nodes, exact to one byte per second for each node. Equal trees
    /// give equal rates. O(n log n) in the number of nodes.
    #[must_use]
    pub fn allocate(&self) -> Grants {
        let count = self.nodes.len();
        let mut uses: Vec<u64> = self.nodes.iter().map(|node| node.use_max).collect();
        let mut floors: Vec<u64> = vec![0; count];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); count];
        // Children come after their parent in `nodes`, so the reverse order visits children first.
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
            // The loop above has collected the children in reverse order.
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

/// A child's claim to a part of its parent's rate.
struct Claim {
    node: usize,
    weight: u64,
    floor: u64,
    use_max: u64,
}

/// Divides `amount` among siblings.
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
    // The conversion succeeds, because the sum of the floors is at most `amount`.
    let mut left = amount - u64::try_from(floors).unwrap_or(amount);
    let room = |claim: &Claim| claim.use_max - claim.floor;
    let mut weights: u128 = claims.iter().map(|claim| u128::from(claim.weight)).sum();
    // Claims with the smallest demand per weight are satisfied first.
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
    // Rounding leaves fewer bytes than there are siblings. The first siblings get one byte each.
    for claim in rest
        .iter()
        .take(usize::try_from(left - spread).unwrap_or(0))
    {
        rates[claim.node] += 1;
    }
}

/// Reduces the floors in proportion if their sum exceeds `amount`.
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

/// Rates of all nodes of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    rates: Vec<u64>,
    missing: Vec<u64>,
}

impl Grants {
    /// Returns the rate of a node. `None` means no limit.
    #[must_use]
    pub fn rate(&self, node: NodeId) -> Option<BytesPerSecond> {
        let rate = self.rates[node.0];
        (rate != NO_BOUND).then_some(BytesPerSecond(rate))
    }

    /// Returns the amount by which the rate of a node is below its floor. If the node can use less
    /// than its floor, returns the amount below the rate that it can use. A rate is below the floor
    /// if the floors of siblings together exceed the capacity: all these floors are then reduced in
    /// proportion.
    #[must_use]
    pub fn missing(&self, node: NodeId) -> BytesPerSecond {
        BytesPerSecond(self.missing[node.0])
    }

    /// Returns true if any node is below its floor.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.missing.iter().any(|missing| *missing > 0)
    }
}

#[cfg(test)]
mod tests;
