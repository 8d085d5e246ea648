//! The configured choices of a tier: its policy, the order in which it demotes and deletes
//! versions, and the conditions for a bypass of the fast roots.

use serde::Deserialize;

/// The policy of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierPolicyName {
    /// BBOS: while applications write, the demotion rate follows the ramp of equation 5.2.
    #[default]
    Bbos,
    /// BBOS with the lowest sufficient rate at each moment.
    BbosEven,
    /// DataWarp: no over-subscription, and the applications do not take turns.
    Datawarp,
    /// Harmonia MaxBW: demotions only while no application writes.
    Maxbw,
    /// Harmonia MaxEff: demotions always at the highest rate.
    Maxeff,
}

/// The order in which a tier demotes and deletes versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VictimOrder {
    /// Older versions first, then the application with the highest MTBF.
    #[default]
    Bbos,
    /// The application with the highest MTBF first.
    Mtbf,
    /// The least recently used version first.
    Lru,
    /// The version that was written first.
    Fifo,
}

/// The conditions under which a write job is placed on the slow root.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BypassKeys {
    /// Minimum `read_max` for a bypass, as a fraction of `write_min`.
    pub ratio: f64,
    /// Fraction of the other applications on the fast roots that must have a lower MTBF.
    pub colder_than: f64,
}

impl Default for BypassKeys {
    fn default() -> Self {
        Self {
            ratio: 0.5,
            colder_than: 1.0,
        }
    }
}
