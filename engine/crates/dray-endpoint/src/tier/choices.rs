//! Converts the choices of the configuration to the policies and rules of `dray_sched::tiers`.

use super::Tier;
use dray_config::{ManagedTier, TierPolicyName, VictimOrder};
use dray_sched::tiers::bypass::BypassRule;
use dray_sched::tiers::device::DeviceModel;
use dray_sched::tiers::failures::Prior;
use dray_sched::tiers::policy::{self, Bbos, DataWarp, EvenBbos, MaxBw, MaxEff, TierPolicy};
use dray_sched::tiers::ramp::{Overflow, Rates, needed_rate};
use dray_sched::tiers::victims::Order;

/// State of a tier for which rates are planned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) dwsf: f64,
    pub(super) dwpp: f64,
    /// Size of the largest version in bytes.
    pub(super) largest: f64,
    /// Bytes on the fast roots without a durable slow copy.
    pub(super) backlog: f64,
    /// Part of `backlog` that running demotions have moved.
    pub(super) moved: f64,
    pub(super) is_writing: bool,
    /// True if the fast roots hold more than the watermark.
    pub(super) is_short: bool,
}

/// Returns the policy of this name.
fn policy(name: TierPolicyName) -> &'static dyn TierPolicy {
    match name {
        TierPolicyName::Bbos => &Bbos {
            form: dray_sched::tiers::ramp::EquationForm::Text,
        },
        TierPolicyName::BbosEven => &EvenBbos,
        TierPolicyName::Datawarp => &DataWarp,
        TierPolicyName::Maxbw => &MaxBw,
        TierPolicyName::Maxeff => &MaxEff,
    }
}

/// Returns the prior distribution of the failure rate of an application.
pub(super) fn prior(tier: &ManagedTier) -> Prior {
    Prior {
        restarts: tier.prior_weight,
        seconds: tier.prior_weight * tier.prior_mtbf as f64,
    }
}

/// Returns the rates of demotions and of writes while an application writes. `capacity` is the
/// capacity in bytes, less the bytes of earlier periods that are not demoted yet.
pub(super) fn rates(
    tier: &ManagedTier,
    device: &DeviceModel,
    capacity: f64,
    moment: &Moment,
) -> Rates {
    let sizes = policy::Tier {
        device: *device,
        // The policy `bbos_even` itself subtracts the bytes that are not demoted yet.
        capacity: match tier.policy {
            TierPolicyName::BbosEven => tier.capacity.0 as f64,
            _ => capacity,
        },
        largest: moment.largest,
        period: tier.period as f64,
    };
    let now = policy::Moment {
        dwsf: moment.dwsf,
        dwpp: moment.dwpp,
        backlog: moment.backlog - moment.moved,
    };
    let policy = policy(tier.policy);
    // `maxbw` and `datawarp` never demote while applications write, not even if space is short.
    // They demote when the writes have ended.
    let is_apart = matches!(
        tier.policy,
        TierPolicyName::Maxbw | TierPolicyName::Datawarp
    );
    match moment.is_short && !is_apart {
        true => sizes.full_rates(),
        false => caught_up(tier, device, policy.rates(&sizes, &now), moment),
    }
}

/// Raises the demotion rate of the policies `bbos` and `bbos_even` if the remaining bytes of the
/// period would otherwise not fit. These policies assume that demotions follow each other without a
/// pause, and that each demoted byte is free immediately. In practice there are pauses, and a
/// version is freed only as a whole, so the rates of the policies may be too low. Does nothing if
/// the policy demands no demotion.
fn caught_up(tier: &ManagedTier, device: &DeviceModel, rates: Rates, moment: &Moment) -> Rates {
    let is_bbos = matches!(tier.policy, TierPolicyName::Bbos | TierPolicyName::BbosEven);
    let free = tier.capacity.0 as f64 - moment.backlog;
    let remaining = moment.dwpp - moment.dwsf;
    let needed = needed_rate(device, free, moment.moved, remaining, moment.largest);
    if !is_bbos || rates.read <= 0.0 || needed <= rates.read {
        return rates;
    }
    Rates {
        read: needed,
        write: device.write_beside(needed),
    }
}

impl Tier {
    /// Returns the largest number of bytes per period that the tier serves.
    pub(super) fn bound(&self) -> f64 {
        let capacity = self.config.capacity.0 as f64;
        match self.config.policy {
            TierPolicyName::Datawarp | TierPolicyName::Maxbw => {
                let sizes = policy::Tier {
                    device: self.device,
                    capacity,
                    largest: 0.0,
                    period: self.config.period as f64,
                };
                policy(self.config.policy).bound(&sizes)
            }
            _ => self.device.admissible(capacity),
        }
    }

    /// Checks that the tier serves these bytes per period.
    pub(super) fn admit_period(&self, dwpp: f64) -> Result<(), String> {
        let bound = self.bound();
        if dwpp <= bound {
            return Ok(());
        }
        let capacity = self.config.capacity.0 as f64;
        Err(match self.config.policy {
            TierPolicyName::Datawarp | TierPolicyName::Maxbw => format!(
                "the applications write {dwpp:.0} bytes per period, but the policy {} allows at \
                    most {bound:.0} bytes",
                policy(self.config.policy).name()
            ),
            _ => Overflow {
                dwpp,
                bound,
                capacity,
            }
            .to_string(),
        })
    }

    /// Returns true if the write jobs of a fast root run one after the other.
    pub(super) fn serializes(&self) -> bool {
        policy(self.config.policy).serializes()
    }

    /// Returns the conditions under which a version is written to the slow root.
    pub(super) const fn bypass_rule(&self) -> BypassRule {
        BypassRule {
            read_part_min: self.config.bypass.ratio,
            colder_than: self.config.bypass.colder_than,
        }
    }

    /// Returns the order in which versions are demoted and deleted.
    pub(super) const fn order(&self) -> Order {
        match self.config.order {
            VictimOrder::Bbos => Order::Bbos,
            VictimOrder::Mtbf => Order::MtbfOnly,
            VictimOrder::Lru => Order::Lru,
            VictimOrder::Fifo => Order::Fifo,
        }
    }
}
