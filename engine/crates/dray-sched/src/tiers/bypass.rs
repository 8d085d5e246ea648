//! Checkpoints that are written directly to the slow tier (BBOS, section 5.1.2, "Direct checkpoint
//! on PFS").

use super::device::DeviceModel;

/// Conditions of a bypass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BypassRule {
    /// Minimum ratio of `read_max` (Brmax) to `write_min` (Bwmin) of the device. BBOS names no
    /// minimum; it applied the bypass at a ratio of 0.53.
    pub read_part_min: f64,
    /// Fraction of the other applications with their newest version on the fast tier whose MTBF
    /// must be lower than the MTBF of the checkpoint's application. With 1.0, all of them must have
    /// a lower MTBF.
    pub colder_than: f64,
}

impl Default for BypassRule {
    fn default() -> Self {
        Self {
            read_part_min: 0.5,
            colder_than: 1.0,
        }
    }
}

/// An incoming checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Incoming {
    /// Size in bytes.
    pub bytes: f64,
    /// MTBF of its application in seconds.
    pub mtbf: f64,
}

/// Returns true if an incoming checkpoint should be written to the slow tier. Three conditions must
/// hold. The bytes written in this period (`dwsf`) and the size of the checkpoint together exceed
/// `capacity`. The demotion is fast enough ([`BypassRule::read_part_min`]). Enough MTBFs in `held`
/// are lower than that of the checkpoint's application ([`BypassRule::colder_than`]). `held` has
/// the MTBFs in seconds of the other applications whose newest version is on the fast tier. All
/// sizes are in bytes.
#[must_use]
pub fn goes_to_slow_tier(
    rule: &BypassRule,
    device: &DeviceModel,
    capacity: f64,
    dwsf: f64,
    incoming: Incoming,
    held: impl IntoIterator<Item = f64>,
) -> bool {
    if dwsf + incoming.bytes <= capacity {
        return false;
    }
    if device.read_max < rule.read_part_min * device.write_min {
        return false;
    }
    let (mut all, mut hotter) = (0u32, 0u32);
    for mtbf in held {
        all += 1;
        hotter += u32::from(mtbf < incoming.mtbf);
    }
    // Without other versions on the fast tier, the checkpoint goes to the fast tier.
    all > 0 && f64::from(hotter) >= rule.colder_than * f64::from(all)
}

#[cfg(test)]
mod tests {
    use super::{BypassRule, Incoming, goes_to_slow_tier};
    use crate::tiers::device::DeviceModel;

    const HELD: [f64; 4] = [10.0, 20.0, 30.0, 40.0];

    fn goes(rule: &BypassRule, read_max: f64, dwsf: f64, mtbf: f64, held: &[f64]) -> bool {
        let device = DeviceModel::new(3.56, 3.0, read_max, 0.08).expect("valid");
        let incoming = Incoming { bytes: 80.0, mtbf };
        goes_to_slow_tier(rule, &device, 2200.0, dwsf, incoming, held.iter().copied())
    }

    #[test]
    fn all_three_conditions_must_hold() {
        let rule = BypassRule::default();
        assert!(goes(&rule, 1.6, 2121.0, 41.0, &HELD));
        assert!(!goes(&rule, 1.6, 2120.0, 41.0, &HELD));
        assert!(!goes(&rule, 1.4, 2121.0, 41.0, &HELD));
        assert!(!goes(&rule, 1.6, 2121.0, 40.0, &HELD));
        assert!(!goes(&rule, 1.6, 2121.0, 41.0, &[]));
    }

    #[test]
    fn a_lower_fraction_sends_more_checkpoints() {
        let rule = BypassRule {
            colder_than: 0.5,
            ..BypassRule::default()
        };
        assert!(goes(&rule, 1.6, 2121.0, 21.0, &HELD));
        assert!(!goes(&rule, 1.6, 2121.0, 20.0, &HELD));
    }
}
