//! Injects faults that depend on a seed: errors, short reads, flipped bits, delays.
//!
//! The fault of a call depends on the seed, the rule, the operation, the path, the offset and the
//! number of earlier calls of the same kind. It does not depend on the order of threads. So the
//! same calls have the same faults in every run.

use super::{Call, Hook, Operation};
use crate::null::mix;
use dray_core::{End, Error, ErrorKind, Result};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Number of counters that count repeated calls. If two kinds of calls share a counter, this only
/// changes the random numbers that they get.
const COUNTERS: usize = 4096;

/// Kinds of faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this kind of error, and the store is not called.
    Error(ErrorKind),
    /// A read returns half of the requested bytes, but at least one byte.
    ShortRead,
    /// One bit of the bytes read or written is flipped.
    FlipBit,
    /// The call waits before the store is called.
    Delay(Duration),
}

/// A fault and the calls that it affects.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Affected operations. If empty, all operations for which the fault is possible.
    pub operations: Vec<Operation>,
    /// Affected paths. `*` matches any bytes, including slashes.
    pub pattern: Vec<u8>,
    /// Probability that an affected call has the fault, from 0 to 1.
    pub probability: f64,
    /// The fault to inject.
    pub fault: Fault,
}

/// Seed and rules. Each rule is applied to each call independently. The first error ends the call.
#[derive(Debug, Clone)]
pub struct ChaosOptions {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Rules for the injected faults.
    pub rules: Vec<Rule>,
    /// End of the transfer that injected errors report.
    pub end: End,
}

/// A hook that injects faults.
pub struct Chaos {
    options: ChaosOptions,
    counters: Box<[AtomicU32]>,
}

impl Chaos {
    /// Creates a hook that injects faults by these rules.
    #[must_use]
    pub fn new(options: ChaosOptions) -> Self {
        Self {
            options,
            counters: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns the rules that affect this call and whose fault is of the kind `wanted`. Each rule
    /// comes with a random number for the details of its fault.
    fn injected<'a>(
        &'a self,
        call: &'a Call<'_>,
        wanted: impl Fn(&Fault) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a Fault, u64)> + 'a {
        let rules = self.options.rules.iter().enumerate();
        rules.filter_map(move |(index, rule)| {
            let applies = wanted(&rule.fault)
                && (rule.operations.is_empty() || rule.operations.contains(&call.operation))
                && matches(&rule.pattern, call.path.as_bytes());
            if !applies {
                return None;
            }
            let draw = self.draw(index, call);
            // The upper 53 bits give a number in `0 .. 1` that a double represents exactly.
            let share = (draw >> 11) as f64 / (1u64 << 53) as f64;
            (share < rule.probability).then(|| (&rule.fault, mix(draw)))
        })
    }

    fn draw(&self, rule: usize, call: &Call<'_>) -> u64 {
        let mut key = mix(self.options.seed ^ rule as u64);
        key = mix(key ^ call.operation as u64);
        key = mix(key ^ call.range.offset);
        for byte in call.path.as_bytes() {
            key = mix(key ^ u64::from(*byte));
        }
        let counter = &self.counters[(key % COUNTERS as u64) as usize];
        let nth = counter.fetch_add(1, Ordering::Relaxed);
        mix(key ^ u64::from(nth))
    }
}

impl Hook for Chaos {
    const DELAYS: bool = true;

    fn before(&self, call: &Call<'_>) -> Result<()> {
        let wanted = |fault: &Fault| matches!(fault, Fault::Error(_) | Fault::Delay(_));
        for (fault, _) in self.injected(call, wanted) {
            match fault {
                Fault::Delay(time) => std::thread::sleep(*time),
                Fault::Error(kind) => {
                    let operation = call.operation.name().replace('_', " ");
                    return Err(Error::new(*kind, self.options.end, operation)
                        .file(call.path)
                        .cause("the chaos wrapper injected a fault")
                        .remedy("remove the chaos wrapper from the test"));
                }
                Fault::ShortRead | Fault::FlipBit => {}
            }
        }
        Ok(())
    }

    fn read_limit(&self, call: &Call<'_>) -> usize {
        let is_short = self
            .injected(call, |fault| *fault == Fault::ShortRead)
            .next()
            .is_some();
        if is_short {
            usize::try_from(call.range.length / 2).unwrap_or(usize::MAX)
        } else {
            usize::MAX
        }
    }

    fn read_done(&self, call: &Call<'_>, bytes: &mut [u8]) {
        for (_, draw) in self.injected(call, |fault| *fault == Fault::FlipBit) {
            flip(bytes, draw);
        }
    }

    fn to_write<'a>(&self, call: &Call<'_>, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut bytes = Cow::Borrowed(bytes);
        for (_, draw) in self.injected(call, |fault| *fault == Fault::FlipBit) {
            flip(bytes.to_mut(), draw);
        }
        bytes
    }
}

fn flip(bytes: &mut [u8], draw: u64) {
    let bits = bytes.len() as u64 * 8;
    if bits > 0 {
        let bit = draw % bits;
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

/// Returns true if `text` matches `pattern`. `*` in the pattern matches any bytes.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut parts = pattern.split(|b| *b == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut last: Option<&[u8]> = None;
    for part in parts {
        if let Some(between) = last.replace(part) {
            let found = (0..=rest.len()).find(|at| rest[*at..].starts_with(between));
            match found {
                Some(at) => rest = &rest[at + between.len()..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_paths() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "a/b"),
            ("a", "a"),
            ("a*", "a/b"),
            ("*.root", "run/x.root"),
            ("a*b*c", "aXbYc"),
            ("a*b*c", "abbc"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", "ab"),
            ("a*b", "a"),
            ("ab*b", "ab"),
            ("*x", "y"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern}");
        }
    }
}
