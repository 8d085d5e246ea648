//! Parses sizes and rates of command lines and configuration files.

/// Parses a size in bytes: `4096`, `64K`, `64KiB` (powers of 1024), `64KB` (powers of 1000).
///
/// # Errors
/// A message with the reason.
pub fn size(text: &str) -> Result<u64, String> {
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
                "{other:?} is not a unit; use K, M, G, T or KiB, MiB, GiB, TiB (powers of 1024), \
                    or KB, MB, GB, TB (powers of 1000)"
            ));
        }
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(factor)
            .ok_or_else(|| "the size is more than 2^64 bytes".to_owned());
    }
    match number.parse::<f64>() {
        // An `f64` holds whole numbers exactly below 2^53, about 9e15. No larger size with a
        // fraction is useful.
        Ok(part) if part.is_finite() && part * (factor as f64) < 9e15 => {
            Ok((part * factor as f64).round() as u64)
        }
        _ => Err(format!("{number:?} is not a number")),
    }
}

/// Parses a rate in bytes per second: a size, with or without `/s`. Zero is an error.
///
/// # Errors
/// A message with the reason.
pub fn rate(text: &str) -> Result<u64, String> {
    match size(text.strip_suffix("/s").unwrap_or(text))? {
        0 => Err(
            "a transfer with a rate of zero would never finish; omit the rate for a \
            transfer without a limit"
                .to_owned(),
        ),
        rate => Ok(rate),
    }
}

/// Formats a number of bytes for people, as in `1.5 GiB`.
#[must_use]
pub fn human(bytes: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::{human, rate, size};

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
