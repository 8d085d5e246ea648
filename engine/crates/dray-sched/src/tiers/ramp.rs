//! Start and speed of a demotion beside the writes of applications (BBOS, section 5.1.2, equations
//! 5.2 and 5.3).

use super::device::DeviceModel;
use std::fmt;

/// Time at which a demotion runs beside writes (Figure 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Pattern 1: only while no application writes.
    WhenIdle,
    /// Pattern 2: from a threshold of DWSF, the bytes written in the period.
    FromThreshold,
    /// Pattern 3: from the first byte of the period.
    FromStart,
}

/// Form of the equation of pattern 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EquationForm {
    /// Form that follows from the text: no demotion runs beside writes before the threshold.
    #[default]
    Text,
    /// Printed form: it assumes that the demotion moves Brmin * tc bytes before the threshold. So a
    /// tier that starts to demote at the threshold demotes too little.
    Printed,
}

/// Bandwidths at one moment in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Rate of the writes of applications.
    pub write: f64,
    /// Rate of demotions.
    pub read: f64,
}

/// An error: applications may write more in a period than the tier can take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overflow {
    /// Data written per period in bytes.
    pub dwpp: f64,
    /// Largest possible number of bytes per period ([`DeviceModel::admissible`]).
    pub bound: f64,
    /// Capacity of the fast tier in bytes.
    pub capacity: f64,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the applications write {:.0} bytes per period, but the tier can take at most {:.0} \
                bytes per period: the tier's capacity ({:.0} bytes) divided by (1 - \
                read_max/write_min)",
            self.dwpp, self.bound, self.capacity
        )
    }
}

impl std::error::Error for Overflow {}

/// Plan of the demotions of one period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ramp {
    /// Pattern of the demotion.
    pub pattern: Pattern,
    /// DWSF in bytes from which a demotion runs beside writes. In pattern 1 it is DWPP.
    pub start: f64,
    /// DWSF in bytes from which the demotion runs at its maximum. In patterns 1 and 2 it is DWPP.
    pub full: f64,
    /// Data written per period in bytes.
    pub dwpp: f64,
    /// Capacity of the fast tier in bytes.
    pub capacity: f64,
    /// Duration of writes without a demotion in seconds, if no idle time is between them.
    pub t_c: f64,
    /// Duration of the increase of the demotion rate in seconds, if no idle time is between writes.
    pub t_dd: f64,
    /// Duration of the demotion at its maximum rate in seconds, if no idle time is between writes.
    pub t_ds: f64,
    device: DeviceModel,
    /// Bandwidths between which the rate increases. They differ from `device` if Brmax exceeds
    /// Bwmin.
    limits: DeviceModel,
}

impl Ramp {
    /// Plans the demotions of a period in which applications write `dwpp` bytes to a fast tier with
    /// `capacity` bytes (equation 5.2).
    ///
    /// If Brmax exceeds Bwmin, the equations as printed in BBOS let the tier overflow before the
    /// end of the writes: the demotion is too slow at first, and becomes faster than the writes
    /// only near the end. For such a device, the plan raises the demotion rate only to the rate of
    /// the writes.
    ///
    /// # Errors
    /// If `dwpp` exceeds [`DeviceModel::admissible`].
    pub fn plan(
        device: &DeviceModel,
        capacity: f64,
        dwpp: f64,
        form: EquationForm,
    ) -> Result<Self, Overflow> {
        let bound = device.admissible(capacity);
        // `dwpp` may be the bound itself, computed elsewhere with another rounding.
        if dwpp > bound * (1.0 + 1e-12) {
            return Err(Overflow {
                dwpp,
                bound,
                capacity,
            });
        }
        let limits = device.without_excess();
        let excess = dwpp - capacity;
        let mut ramp = Self {
            pattern: Pattern::WhenIdle,
            start: dwpp,
            full: dwpp,
            dwpp,
            capacity,
            t_c: dwpp / device.write_max,
            t_dd: 0.0,
            t_ds: 0.0,
            device: *device,
            limits,
        };
        if excess <= 0.0 {
            return Ok(ramp);
        }
        let write = f64::midpoint(limits.write_max, limits.write_min);
        let read = f64::midpoint(limits.read_max, limits.read_min);
        // [`Pattern::FromThreshold`] is possible if the demotion rate can rise from its minimum to
        // its maximum during the writes.
        if excess * write < dwpp * read {
            let (t_c, t_dd) = match form {
                EquationForm::Text => {
                    let t_dd = excess / read;
                    ((dwpp - write * t_dd) / limits.write_max, t_dd)
                }
                EquationForm::Printed => {
                    let divisor = limits.write_max * read - limits.read_min * write;
                    let t_c = (dwpp * read - excess * write) / divisor;
                    let t_dd = (excess - limits.read_min * t_c) / read;
                    (t_c.min(dwpp / limits.write_max), t_dd.max(0.0))
                }
            };
            ramp.pattern = Pattern::FromThreshold;
            (ramp.t_c, ramp.t_dd) = (t_c, t_dd);
            ramp.start = limits.write_max * t_c;
            return Ok(ramp);
        }
        let divisor = write * limits.read_max - read * limits.write_min;
        // If the minima equal the maxima, the demotion rate does not increase.
        let is_flat = divisor <= f64::EPSILON * write * limits.read_max;
        let over = dwpp * limits.read_max - excess * limits.write_min;
        let t_dd = if is_flat {
            0.0
        } else {
            (over / divisor).max(0.0)
        };
        ramp.pattern = Pattern::FromStart;
        ramp.start = 0.0;
        ramp.full = (write * t_dd).min(dwpp);
        ramp.t_c = 0.0;
        ramp.t_dd = t_dd;
        ramp.t_ds = (dwpp - ramp.full) / limits.write_min;
        Ok(ramp)
    }

    /// Plans the demotions of a period for versions that are demoted only after they are complete.
    /// `largest` is the size of the largest version in bytes. If the demotion would start during the
    /// first version, the plan uses the capacity less [`DeviceModel::unfinished`].
    ///
    /// # Errors
    /// If `dwpp` exceeds [`DeviceModel::admissible`] for that capacity.
    pub fn plan_versions(
        device: &DeviceModel,
        capacity: f64,
        dwpp: f64,
        largest: f64,
        form: EquationForm,
    ) -> Result<Self, Overflow> {
        let ramp = Self::plan(device, capacity, dwpp, form)?;
        if ramp.start >= largest.min(dwpp) {
            return Ok(ramp);
        }
        let capacity = (capacity - device.unfinished(largest)).max(0.0);
        Self::plan(device, capacity, dwpp, form)
    }

    /// Returns the rates beside writes after `dwsf` bytes of the period.
    #[must_use]
    pub fn rates(&self, dwsf: f64) -> Rates {
        if self.pattern == Pattern::WhenIdle || dwsf < self.start {
            return Rates {
                write: self.device.write_max,
                read: 0.0,
            };
        }
        let limits = &self.limits;
        let part = self.part(dwsf);
        Rates {
            write: limits.write_max - part * (limits.write_max - limits.write_min),
            read: limits.read_min + part * (limits.read_max - limits.read_min),
        }
    }

    /// Returns the number of bytes that demotions have moved beside writes, after `dwsf` bytes are
    /// written in the period.
    #[must_use]
    pub fn demoted(&self, dwsf: f64) -> f64 {
        if self.pattern == Pattern::WhenIdle || dwsf < self.start {
            return 0.0;
        }
        let limits = &self.limits;
        let part = self.part(dwsf);
        let rising = limits.read_min + part * (limits.read_max - limits.read_min) / 2.0;
        let at_full = (dwsf - self.full).max(0.0) / limits.write_min;
        part * self.t_dd * rising + at_full * limits.read_max
    }

    /// Returns the part of the increase of the demotion rate that is complete, from 0 to 1.
    fn part(&self, dwsf: f64) -> f64 {
        if dwsf >= self.full || self.t_dd <= 0.0 {
            return 1.0;
        }
        // The rates change linearly, and DWSF is the integral of the write rate. If p is the part
        // of tdd that has passed, x is Bwmax p - (Bwmax - Bwmin) p^2 / 2. The form below of the
        // solution for p is also exact for Bwmax = Bwmin.
        let x = (dwsf - self.start) / self.t_dd;
        let limits = &self.limits;
        let fall = limits.write_max - limits.write_min;
        let root = (limits.write_max.powi(2) - 2.0 * fall * x).max(0.0).sqrt();
        (2.0 * x / (limits.write_max + root)).clamp(0.0, 1.0)
    }

    /// Returns true if the period is long enough to demote, after the last write, the bytes that
    /// only the fast tier has: (period - (tc + td)) Brmax ≥ S (equation 5.3, with Brmax for the
    /// undefined Bdmax). In pattern 1, DWPP replaces S.
    #[must_use]
    pub fn fits_period(&self, period_seconds: f64) -> bool {
        self.period_min() <= period_seconds
    }

    /// Returns the shortest period in seconds for which [`Ramp::fits_period`] is true.
    #[must_use]
    pub fn period_min(&self) -> f64 {
        let rest = self.capacity.min(self.dwpp);
        self.t_c + self.t_dd + self.t_ds + rest / self.device.read_max
    }
}

/// Returns the lowest constant demotion rate, and the write rate beside it, with which the tier
/// does not overflow if all remaining bytes of the period are written without idle time. `free` is
/// the capacity less the data that must still be demoted, in bytes. `remaining` is DWPP less DWSF.
/// The caller computes the rates again as bytes are written and demoted. The results stay equal
/// while applications write without idle time. Each demotion in idle time lowers the next results.
///
/// The line of the device (BBOS, equation 5.1) makes the duration of all writes depend on the mean
/// demotion rate only. So without idle time these rates finish the writes as early as a [`Ramp`]
/// does, and with idle time earlier.
#[must_use]
pub fn even_rates(device: &DeviceModel, free: f64, remaining: f64) -> Rates {
    if remaining <= free {
        return Rates {
            write: device.write_max,
            read: 0.0,
        };
    }
    let limits = device.without_excess();
    let share = 1.0 - free.max(0.0) / remaining;
    // Below Brmin, writes keep Bwmax. Above, read = share * write on the line of the device.
    let low = share * limits.write_max;
    let read = if low <= limits.read_min {
        low
    } else {
        let reads = limits.read_max - limits.read_min;
        let fall = limits.write_max - limits.write_min;
        let slope = if reads > 0.0 { fall / reads } else { 0.0 };
        share * (limits.write_max + slope * limits.read_min) / (1.0 + share * slope)
    };
    let read = read.min(limits.read_max);
    Rates {
        write: limits.write_beside(read),
        read,
    }
}

/// Returns the lowest demotion rate in bytes per second with which the remaining bytes of the
/// period fit into the fast tier. Versions are demoted only after they are complete, and their
/// space becomes free only at the end of their demotion. `free` is the capacity less the bytes
/// without a durable slow copy, and `moved` the number of these bytes that the running demotion has
/// moved. `remaining` is DWPP less DWSF, and `largest` the size of the largest version.
///
/// The space of the version that is being demoted becomes free only at the end. So the rate is
/// computed as if `largest` bytes less were free. After a pause or a late start of a demotion fewer
/// bytes are free, so the rate is higher.
#[must_use]
pub fn needed_rate(
    device: &DeviceModel,
    free: f64,
    moved: f64,
    remaining: f64,
    largest: f64,
) -> f64 {
    if remaining <= free {
        return 0.0;
    }
    even_rates(device, free + moved - largest, remaining).read
}

/// Returns the rate in bytes per second of the demotion of a version with a deadline: the higher of
/// the rate of the ramp and the rate that the deadline needs (the remaining bytes divided by the
/// remaining time). It does not exceed `read_max`.
#[must_use]
pub fn demotion_rate(
    ramp_rate: f64,
    remaining_bytes: f64,
    remaining_seconds: f64,
    read_max: f64,
) -> f64 {
    let needed = if remaining_bytes <= 0.0 {
        0.0
    } else if remaining_seconds <= 0.0 {
        read_max
    } else {
        remaining_bytes / remaining_seconds
    };
    ramp_rate.max(needed).min(read_max)
}

#[cfg(test)]
mod tests;
