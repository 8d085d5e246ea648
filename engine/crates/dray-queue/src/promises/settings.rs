//! The configured rates that promises are based on.

use dray_api::names_peer;

/// The settings for promises.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Maximum number of transfers that have not ended.
    pub transfers_max: u64,
    /// Capacity of the whole endpoint in bytes per second; `None` to measure it.
    pub rate: Option<u64>,
    /// Rates of the exported roots.
    pub roots: Vec<RootRate>,
    /// Rates between the roots of tiers.
    pub tiers: Vec<TierRate>,
    /// Shares of the endpoint's rate.
    pub shares: Vec<Share>,
}

/// The rate between the fast roots of a tier and its slow roots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierRate {
    /// Name of the tier.
    pub name: String,
    /// Names of the fast roots.
    pub fast: Vec<String>,
    /// Names of the slow root and of the other roots of the replication group.
    pub slow: Vec<String>,
    /// Bytes per second that all transfers from fast roots to slow roots and back may use together
    /// (Brmax).
    pub rate: u64,
}

impl TierRate {
    /// Returns true if a transfer between these two roots, in either direction, uses the rate.
    pub(super) fn is_between(&self, one: &str, other: &str) -> bool {
        let has = |roots: &[String], name: &str| roots.iter().any(|root| root == name);
        (has(&self.fast, one) && has(&self.slow, other))
            || (has(&self.slow, one) && has(&self.fast, other))
    }
}

/// The rate of an exported root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootRate {
    /// Name of the root.
    pub name: String,
    /// Bytes per second that all transfers together may read from the root and write to it.
    pub rate: Option<u64>,
}

/// A share of the endpoint's rate, for a peer or an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The other endpoint's name, `HOST` or `HOST:PORT`.
    pub peer: Option<String>,
    /// The owner, if `peer` is not set.
    pub owner: Option<String>,
    /// Weight of the share when the remaining rate is divided.
    pub weight: u32,
    /// Minimum bytes per second: all shares get their minimum before any share gets more.
    pub rate_min: Option<u64>,
    /// Maximum bytes per second.
    pub rate_max: Option<u64>,
}

impl Settings {
    /// Returns the share of a peer (`HOST` or `HOST:PORT`).
    pub(super) fn share_of_peer(&self, address: &str) -> Option<&Share> {
        let is_of_peer = |share: &&Share| {
            let peer = share.peer.as_deref();
            peer.is_some_and(|peer| names_peer(peer, address))
        };
        self.shares.iter().find(is_of_peer)
    }

    pub(super) fn share_of_owner(&self, owner: &str) -> Option<&Share> {
        let mut shares = self.shares.iter();
        shares.find(|share| share.owner.as_deref() == Some(owner))
    }
}
