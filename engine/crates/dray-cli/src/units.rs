//! Numbers as people write them: sizes, rates, byte ranges, orders.

use dray_core::options::Order;
use dray_core::{ByteRange, Checksum, plan};

/// Bytes: `4096`, `64K`, `64KiB` (powers of 1024), `64KB` (powers of 1000).
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        other => {
            return Err(format!(
                "{other:?} is no unit; use K, M, G, T (KiB and so on, powers of 1024) or KB, MB, GB"
            ));
        }
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(factor)
            .ok_or_else(|| "more than 2^64 bytes".to_owned());
    }
    match number.parse::<f64>() {
        // 2^53 is where whole numbers stop being exact; nobody types a fraction of more than that.
        Ok(part) if part.is_finite() && part * (factor as f64) < 9e15 => {
            Ok((part * factor as f64).round() as u64)
        }
        _ => Err(format!("{number:?} is no number")),
    }
}

/// A number and its noun: `1 file`, `2 files`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// Bytes of buffers: a size that this host's memory can hold.
pub(crate) fn pool(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    match memory_bytes() {
        Some(memory) if bytes > memory => Err(format!(
            "{} is more than the memory of this host, {}",
            human(bytes),
            human(memory)
        )),
        _ => Ok(bytes),
    }
}

/// Memory of this host, if the system tells.
fn memory_bytes() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = told
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes per second: a size, with or without `/s`; never zero.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    match size(text.strip_suffix("/s").unwrap_or(text))? {
        0 => Err("a rate of zero never ends; leave it out for no limit".to_owned()),
        rate => Ok(rate),
    }
}

/// Bytes of an object, within what a transfer allows.
pub(crate) fn object_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if (plan::OBJECT_BYTES_MIN..=plan::OBJECT_BYTES_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("{bytes} bytes; 4KiB to 64MiB are allowed"))
    }
}

/// `OFFSET:LENGTH`, each a size.
pub(crate) fn range(text: &str) -> Result<ByteRange, String> {
    let (offset, length) = text
        .split_once(':')
        .ok_or_else(|| "write it as OFFSET:LENGTH, such as 0:1MiB".to_owned())?;
    let range = ByteRange::new(size(offset)?, size(length)?);
    range.ok_or_else(|| "it ends past 2^64 bytes".to_owned())
}

/// `layout`, `file` or `random:SEED`.
pub(crate) fn order(text: &str) -> Result<Order, String> {
    match text {
        "layout" => Ok(Order::Layout),
        "file" => Ok(Order::File),
        other => other
            .strip_prefix("random:")
            .and_then(|seed| seed.parse().ok())
            .map(|seed| Order::Random { seed })
            .ok_or_else(|| "layout, file or random:SEED (a number)".to_owned()),
    }
}

/// `adler32:HHHHHHHH` or `crc32c:HHHHHHHH`.
pub(crate) fn checksum(text: &str) -> Result<Checksum, String> {
    Checksum::parse(text)
        .ok_or_else(|| "write it as adler32:HHHHHHHH or crc32c:HHHHHHHH (hexadecimal)".to_owned())
}

/// `NAME=RATE`.
pub(crate) fn target_rate(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text
        .rsplit_once('=')
        .ok_or_else(|| "write it as NAME=RATE".to_owned())?;
    Ok((name.to_owned(), rate(value)?))
}

/// Bytes for people: `1.5 GiB`.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A time for people: `1h02m`, `3m05s`, `12s`.
pub(crate) fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::{human, object_size, order, range, rate, size, target_rate};
    use dray_core::ByteRange;
    use dray_core::options::Order;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65_536),
            ("1MiB", 1 << 20),
            ("1.5g", 3 << 29),
            ("2MB", 2_000_000),
            ("10 kib", 10_240),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in [
            "",
            "x",
            "-1",
            "1X",
            "1e3",
            "99999999999999999999",
            "99999999T",
            "1.2.3",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(rate("10M/s"), Ok(10 << 20));
        assert!(rate("0").is_err());
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
        assert_eq!(target_rate("a=b=1K"), Ok(("a=b".to_owned(), 1024)));
    }

    #[test]
    fn bytes_for_people() {
        for (bytes, text) in [
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}
