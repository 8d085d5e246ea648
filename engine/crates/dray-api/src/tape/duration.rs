//! ISO 8601 durations, such as `P2DT12H`.

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Returns the seconds of a duration. Fractions of a second are rounded up. A month counts as 30
/// days and a year as 365 days. Returns `None` if the text is not a duration, or is too long.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let whole = text.strip_prefix('P')?;
    let (date, time) = match whole.split_once('T') {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (whole, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let units = [
        ('Y', 365 * DAY),
        ('M', 30 * DAY),
        ('W', 7 * DAY),
        ('D', DAY),
    ];
    let days = part(date, &units)?;
    let clock = part(time, &[('H', HOUR), ('M', MINUTE), ('S', 1)])?;
    days.checked_add(clock)
}

/// Returns the seconds of numbers with units. Each unit occurs at most once, in the given order.
fn part(mut text: &str, mut units: &[(char, u64)]) -> Option<u64> {
    let mut sum = 0_u64;
    while !text.is_empty() {
        let end = text.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, rest) = text.split_at(end);
        let unit = rest.chars().next()?;
        let at = units.iter().position(|(known, _)| *known == unit)?;
        let count = match number.split_once(['.', ',']) {
            Some((count, fraction)) if unit == 'S' && is_digits(fraction) => {
                let is_more = fraction.bytes().any(|digit| digit != b'0');
                digits(count)?.checked_add(u64::from(is_more))?
            }
            Some(_) => return None,
            None => digits(number)?,
        };
        sum = sum.checked_add(count.checked_mul(units.get(at)?.1)?)?;
        units = units.get(at + 1..)?;
        text = rest.get(unit.len_utf8()..)?;
    }
    Some(sum)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn digits(text: &str) -> Option<u64> {
    is_digits(text).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn durations_are_read() {
        for (text, wanted) in [
            ("PT1H", Some(3_600)),
            ("P2DT12H", Some(216_000)),
            ("P1W", Some(604_800)),
            ("P1Y2M3D", Some((365 + 60 + 3) * 86_400)),
            ("PT1M30.5S", Some(91)),
            ("PT0S", Some(0)),
            ("P", None),
            ("PT", None),
            ("P1DT", None),
            ("P1H", None),
            ("PT1D", None),
            ("PT1S1H", None),
            ("PT1.5H", None),
            ("PT1", None),
            ("3600", None),
            ("P99999999999999999999D", None),
            ("P-1D", None),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }
}
