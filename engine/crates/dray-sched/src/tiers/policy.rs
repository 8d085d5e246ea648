//! Policies of a tier: BBOS, and the policies that section 5.3 of the dissertation on BBOS compares
//! with it.
//!
//! LRU and FIFO, which the dissertation also compares, do not choose rates. They choose the
//! versions to demote and delete ([`super::victims::Order`]).

use super::device::DeviceModel;
use super::ramp::{EquationForm, Overflow, Ramp, Rates, even_rates};

/// Capacity and bandwidths of a fast tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tier {
    /// Bandwidths.
    pub device: DeviceModel,
    /// Capacity S in bytes.
    pub capacity: f64,
    /// Size in bytes of the largest version, if a version is demoted only after it is complete. Zero
    /// if bytes are demoted as they are written.
    pub largest: f64,
    /// Period in seconds.
    pub period: f64,
}

/// State of a fast tier while an application writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Data written so far in the period, in bytes.
    pub dwsf: f64,
    /// Data written per period in bytes: known, declared or estimated.
    pub dwpp: f64,
    /// Bytes on the fast tier without a durable copy on the slow tier.
    pub backlog: f64,
}

/// Decisions of a policy. Rates and bounds are those of one device, or of a tier as a whole.
pub trait TierPolicy {
    /// Returns the name of the policy.
    fn name(&self) -> &'static str;

    /// Returns true if the writes of applications run one after the other on a device.
    fn serializes(&self) -> bool {
        true
    }

    /// Returns the largest DWPP in bytes that the policy serves: all of it is written and demoted
    /// in a period.
    fn bound(&self, tier: &Tier) -> f64;

    /// Returns the rates beside writes. Without writes, every policy demotes at Brmax.
    fn rates(&self, tier: &Tier, moment: &Moment) -> Rates;

    /// Returns the number of bytes that must be free on the fast tier before a write of `bytes`
    /// starts: those that are not demoted during the write.
    fn space_to_start(&self, tier: &Tier, moment: &Moment, bytes: f64) -> f64 {
        let rates = self.rates(tier, moment);
        bytes * (1.0 - rates.read / rates.write).max(0.0)
    }

    /// Checks that the policy serves this DWPP.
    ///
    /// # Errors
    /// If `dwpp` exceeds [`TierPolicy::bound`].
    fn admit(&self, tier: &Tier, dwpp: f64) -> Result<(), Overflow> {
        let bound = self.bound(tier);
        if dwpp <= bound {
            return Ok(());
        }
        let capacity = tier.capacity;
        Err(Overflow {
            dwpp,
            bound,
            capacity,
        })
    }
}

/// BBOS with the ramp of equation 5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bbos {
    /// Form of the equation.
    pub form: EquationForm,
}

/// BBOS with the lowest sufficient rates at each moment ([`even_rates`]). Each demotion in idle
/// time lowers the demotion rates that follow, so later writes are faster. The dissertation does
/// not have this policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EvenBbos;

/// DataWarp: each application owns its capacity, so the tier is never over-subscribed. Writes are
/// not scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataWarp;

/// Harmonia MaxBW: demotions run only while no application writes. A write waits until the tier has
/// space for all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaxBw;

/// Harmonia MaxEff: demotions always run at Brmax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaxEff;

impl Tier {
    /// Returns the rates beside a demotion at its maximum.
    #[must_use]
    pub fn full_rates(&self) -> Rates {
        Rates {
            write: self.device.write_min,
            read: self.device.read_max,
        }
    }

    /// Returns the rates of writes without a demotion.
    #[must_use]
    pub fn write_rates(&self) -> Rates {
        Rates {
            write: self.device.write_max,
            read: 0.0,
        }
    }

    /// Returns the largest DWPP in bytes that demotions at Brmax can keep up with.
    fn full_bound(&self) -> f64 {
        let planned = self.capacity - self.device.unfinished(self.largest);
        let space = self.device.admissible(planned.max(0.0));
        space
            .max(self.capacity)
            .min(self.period * self.device.read_max)
    }

    /// Returns the largest DWPP in bytes that is written at Bwmax and then demoted in a period.
    fn apart_bound(&self) -> f64 {
        self.period / (1.0 / self.device.write_max + 1.0 / self.device.read_max)
    }
}

impl Bbos {
    fn plan(self, tier: &Tier, dwpp: f64) -> Result<Ramp, Overflow> {
        Ramp::plan_versions(&tier.device, tier.capacity, dwpp, tier.largest, self.form)
    }
}

impl TierPolicy for Bbos {
    fn name(&self) -> &'static str {
        "BBOS"
    }

    fn bound(&self, tier: &Tier) -> f64 {
        let fits = |dwpp: f64| {
            let plan = self.plan(tier, dwpp);
            plan.is_ok_and(|ramp| ramp.fits_period(tier.period))
        };
        let high = tier.full_bound();
        if fits(high) {
            return high;
        }
        let (mut low, mut high) = (0.0, high);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    fn rates(&self, tier: &Tier, moment: &Moment) -> Rates {
        // A tier that admitted too much demotes as fast as it can.
        self.plan(tier, moment.dwpp)
            .map_or_else(|_| tier.full_rates(), |ramp| ramp.rates(moment.dwsf))
    }

    fn space_to_start(&self, tier: &Tier, moment: &Moment, bytes: f64) -> f64 {
        let demoted = self.plan(tier, moment.dwpp).map_or_else(
            |_| bytes * tier.device.read_max / tier.device.write_min,
            |ramp| ramp.demoted(moment.dwsf + bytes) - ramp.demoted(moment.dwsf),
        );
        (bytes - demoted).max(0.0)
    }
}

impl TierPolicy for EvenBbos {
    fn name(&self) -> &'static str {
        "BBOS, even"
    }

    fn bound(&self, tier: &Tier) -> f64 {
        Bbos::default().bound(tier)
    }

    fn rates(&self, tier: &Tier, moment: &Moment) -> Rates {
        let free = tier.capacity - moment.backlog - tier.device.unfinished(tier.largest);
        even_rates(&tier.device, free, moment.dwpp - moment.dwsf)
    }
}

impl TierPolicy for DataWarp {
    fn name(&self) -> &'static str {
        "DataWarp"
    }

    fn serializes(&self) -> bool {
        false
    }

    fn bound(&self, tier: &Tier) -> f64 {
        tier.capacity.min(tier.apart_bound())
    }

    fn rates(&self, tier: &Tier, _: &Moment) -> Rates {
        tier.write_rates()
    }
}

impl TierPolicy for MaxBw {
    fn name(&self) -> &'static str {
        "MaxBW"
    }

    fn bound(&self, tier: &Tier) -> f64 {
        tier.apart_bound()
    }

    fn rates(&self, tier: &Tier, _: &Moment) -> Rates {
        tier.write_rates()
    }
}

impl TierPolicy for MaxEff {
    fn name(&self) -> &'static str {
        "MaxEff"
    }

    fn bound(&self, tier: &Tier) -> f64 {
        tier.full_bound()
    }

    fn rates(&self, tier: &Tier, _: &Moment) -> Rates {
        tier.full_rates()
    }
}

#[cfg(test)]
mod tests {
    use super::{Bbos, DataWarp, EvenBbos, MaxBw, MaxEff, Moment, Tier, TierPolicy};
    use crate::tiers::device::DeviceModel;

    /// The tier of the paper in GB, with S = 2200 GB.
    fn paper(largest: f64) -> Tier {
        Tier {
            device: DeviceModel::new(3.56, 3.0, 1.6, 0.08).expect("valid"),
            capacity: 2200.0,
            largest,
            period: 3800.0,
        }
    }

    #[test]
    fn the_bounds_of_the_paper() {
        let part = |policy: &dyn TierPolicy| policy.bound(&paper(0.0)) / 2200.0;
        assert_eq!(part(&DataWarp), 1.0);
        assert!((part(&MaxBw) - 1.907).abs() < 1e-3);
        for policy in [&MaxEff as &dyn TierPolicy, &Bbos::default(), &EvenBbos] {
            assert!((part(policy) - 2.143).abs() < 1e-3, "{}", policy.name());
        }
        // If only complete versions of 80 GB are demoted, the bound is lower: the first demotion
        // starts late.
        let part = Bbos::default().bound(&paper(80.0)) / 2200.0;
        assert!((part - 2.101).abs() < 1e-3, "{part}");
    }

    #[test]
    fn a_short_period_lowers_the_bound() {
        let tier = Tier {
            period: 2000.0,
            ..paper(0.0)
        };
        let bound = Bbos::default().bound(&tier);
        assert!(bound < 0.8 * MaxEff.bound(&tier), "{bound}");
        let error = Bbos::default().admit(&tier, 3200.0).expect_err("too short");
        assert_eq!(error.bound, bound);
    }

    #[test]
    fn only_a_demotion_beside_a_write_lowers_the_space_that_it_needs() {
        let moment = Moment {
            dwsf: 0.0,
            dwpp: 4180.0,
            backlog: 0.0,
        };
        let tier = paper(0.0);
        assert_eq!(MaxBw.space_to_start(&tier, &moment, 80.0), 80.0);
        let space = MaxEff.space_to_start(&tier, &moment, 80.0);
        assert!((space - 80.0 * 1.4 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn even_rates_fall_after_idle_time() {
        let tier = paper(0.0);
        let read = |dwsf, backlog| {
            let moment = Moment {
                dwsf,
                dwpp: 4180.0,
                backlog,
            };
            EvenBbos.rates(&tier, &moment).read
        };
        assert!(read(800.0, 800.0) > read(800.0, 400.0));
        assert!(read(800.0, 400.0) > read(2000.0, 0.0));
        assert_eq!(read(2000.0, 0.0), 0.0);
    }
}
