//! Parsers and printers of byte ranges, orders, buffer sizes and times. The parsers of sizes and
//! rates are in dray-core.

use dray_api::Timestamp;
use dray_core::options::Order;
use dray_core::{ByteRange, Checksum, plan};
use dray_endpoint::clock;
use dray_open::prepare::RateInTime;
use dray_runtime::assembly::{THREADS_MAX, Threads};
use dray_runtime::drive::StreamCount;
use dray_runtime::sweep::AGE_MIN;
use std::time::Duration;

pub(crate) use dray_core::units::{human, rate, size};

/// Returns a number and its noun in singular or plural: `1 file`, `2 files`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// Returns an age in hours or days.
pub(crate) fn age_in_words(age: Duration) -> String {
    let hours = age.as_secs() / 3600;
    match hours {
        0..48 => count(hours, "hour"),
        _ => count(hours / 24, "day"),
    }
}

/// Parses an age such as `30d`: a number and `s`, `m`, `h`, `d` or `w`.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let how = "write the age as a number with the unit s, m, h, d or w, such as 30d";
    let unit = text.chars().last().ok_or(how)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        'w' => 7 * 24 * 3600,
        _ => return Err(how.to_owned()),
    };
    let number: u64 = text[..text.len() - unit.len_utf8()]
        .parse()
        .map_err(|_| how.to_owned())?;
    let age = number.checked_mul(seconds).map(Duration::from_secs);
    let age = age.ok_or_else(|| "the age has more than 2^64 seconds".to_owned())?;
    match age < AGE_MIN {
        true => Err("give an age of at least 1h, because younger data may be in use".to_owned()),
        false => Ok(age),
    }
}

/// Parses the size of the buffers. Fails if the size exceeds the memory of this host.
pub(crate) fn pool(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    match memory_bytes() {
        Some(memory) if bytes > memory => Err(format!(
            "{} is more than the memory of this host, which is {}",
            human(bytes),
            human(memory)
        )),
        _ => Ok(bytes),
    }
}

/// Returns the size of this host's memory in bytes, if the system reports it.
fn memory_bytes() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = told
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Parses an object size and checks the limits of a transfer.
pub(crate) fn object_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if (plan::OBJECT_BYTES_MIN..=plan::OBJECT_BYTES_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!(
            "the size is {bytes} bytes; 4KiB to 64MiB are allowed"
        ))
    }
}

/// Parses `OFFSET:LENGTH`. Both parts are sizes.
pub(crate) fn range(text: &str) -> Result<ByteRange, String> {
    let (offset, length) = text
        .split_once(':')
        .ok_or_else(|| "write the range as OFFSET:LENGTH, such as 0:1MiB".to_owned())?;
    let range = ByteRange::new(size(offset)?, size(length)?);
    range.ok_or_else(|| "the range ends past 2^64 bytes".to_owned())
}

/// Parses `1` to `256`, or `auto`.
pub(crate) fn streams(text: &str) -> Result<StreamCount, String> {
    match text.parse() {
        Ok(count @ 1..=256) => Ok(StreamCount::Fixed(count)),
        _ if text == "auto" => Ok(StreamCount::Tuned),
        _ => Err("write a number of data connections from 1 to 256, or `auto`".to_owned()),
    }
}

/// Parses `1` to `64`, or `auto`.
pub(crate) fn threads(text: &str) -> Result<Threads, String> {
    match text.parse() {
        Ok(count @ 1..=THREADS_MAX) => Ok(Threads::Fixed(count)),
        _ if text == "auto" => Ok(Threads::Tuned),
        _ => Err(format!(
            "write a number of threads from 1 to {THREADS_MAX}, or `auto`"
        )),
    }
}

/// Parses `layout`, `file` or `random:SEED`.
pub(crate) fn order(text: &str) -> Result<Order, String> {
    match text {
        "layout" => Ok(Order::Layout),
        "file" => Ok(Order::File),
        other => other
            .strip_prefix("random:")
            .and_then(|seed| seed.parse().ok())
            .map(|seed| Order::Random { seed })
            .ok_or_else(|| {
                "write `layout`, `file` or `random:SEED`, where SEED is a number".to_owned()
            }),
    }
}

/// Parses `adler32:HHHHHHHH` or `crc32c:HHHHHHHH`.
pub(crate) fn checksum(text: &str) -> Result<Checksum, String> {
    Checksum::parse(text).ok_or_else(|| {
        "write the checksum as adler32:HHHHHHHH or crc32c:HHHHHHHH (hexadecimal)".to_owned()
    })
}

/// Parses `NAME=RATE[,RATE@SECONDS...][,+SECONDS]`.
pub(crate) fn target_rate(text: &str) -> Result<(String, RateInTime), String> {
    let (name, value) = text
        .rsplit_once('=')
        .ok_or_else(|| "write the limit as NAME=RATE".to_owned())?;
    Ok((name.to_owned(), RateInTime::parse(value)?))
}

/// Parses a duration: `30s`, `20m`, `12h`, `7d`.
pub(crate) fn time(text: &str) -> Result<std::time::Duration, String> {
    let wrong =
        || format!("{text:?} is not a duration: write a duration such as 30s, 20m, 12h or 7d");
    let (number, seconds) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(seconds).filter(|seconds| *seconds > 0);
    seconds
        .map(std::time::Duration::from_secs)
        .ok_or_else(wrong)
}

/// Parses a point in time, in the form of RFC 3339 or as a duration from now.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let from_now = || time(text).map(|length| clock::now().after(length));
    let wrong = |_| {
        format!(
            "{text:?} is not a time: write a time such as 2026-11-21T17:00:00Z, or a duration from \
                now such as 20m"
        )
    };
    Timestamp::parse(text).map_or_else(|| from_now().map_err(wrong), Ok)
}

/// Returns a duration in short form: `1h02m`, `3m05s`, `12s`.
pub(crate) fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::{RateInTime, age, age_in_words, object_size, order, range, target_rate};
    use dray_core::ByteRange;
    use dray_core::options::Order;
    use std::time::Duration;

    #[test]
    fn ages_are_an_hour_at_least() {
        let day = 24 * 3600;
        for (text, seconds) in [
            ("1h", 3600),
            ("90m", 5400),
            ("30d", 30 * day),
            ("2w", 14 * day),
        ] {
            assert_eq!(age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["59m", "", "d", "30", "30 d", "1y", "1\u{e9}", "-1d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
        assert_eq!(age_in_words(Duration::from_secs(3700)), "1 hour");
        assert_eq!(age_in_words(Duration::from_secs(47 * 3600)), "47 hours");
        assert_eq!(age_in_words(Duration::from_secs(3 * day)), "3 days");
    }

    #[test]
    fn objects_have_bounds() {
        assert!(object_size("1K").is_err() && object_size("65M").is_err());
        assert_eq!(object_size("4K"), Ok(4096));
    }

    #[test]
    fn ranges_orders_and_target_rates() {
        assert_eq!(
            range("1K:2K"),
            Ok(ByteRange {
                offset: 1024,
                length: 2048
            })
        );
        assert!(range("18446744073709551615:1").is_err());
        assert!(range("7").is_err());
        assert_eq!(order("random:7"), Ok(Order::Random { seed: 7 }));
        assert!(order("random").is_err());
        let rate = RateInTime::parse("1K,2K@3").expect("good");
        assert_eq!(target_rate("a=b=1K,2K@3"), Ok(("a=b".to_owned(), rate)));
    }
}
