//! Text form of wall-clock time: milliseconds since 1970 as RFC 3339 in UTC.

use std::fmt;

const DAY_MS: i64 = 86_400_000;

/// Start of the year 0, in milliseconds since 1970.
pub const MS_MIN: i64 = -62_167_219_200_000;
/// End of the year 9999, in milliseconds since 1970.
pub const MS_MAX: i64 = 253_402_300_799_999;

/// Parses RFC 3339 text such as `2026-11-21T17:00:00Z`, with any fraction of a second and any time
/// zone offset. Returns milliseconds since 1970.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || !text.is_ascii() {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = &bytes[from..to];
        let all = digits.iter().all(u8::is_ascii_digit);
        all.then(|| digits.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0')))
    };
    let is_shaped = bytes[4] == b'-'
        && bytes[7] == b'-'
        && matches!(bytes[10], b'T' | b't' | b' ')
        && bytes[13] == b':'
        && bytes[16] == b':';
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    // A leap second (second 60) counts as the first second of the next minute.
    if !is_shaped || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_from_civil(year, month, day)?;
    let mut at = 19;
    let mut ms = 0;
    if bytes[at] == b'.' {
        let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit());
        let count = digits.count();
        let kept = count.min(3);
        ms = number(at + 1, at + 1 + kept)? * [0, 100, 10, 1][kept];
        if count == 0 {
            return None;
        }
        at += 1 + count;
    }
    let offset = match bytes.get(at)? {
        b'Z' | b'z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && bytes[at + 3] == b':' => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let length = (hours * 60 + minutes) * 60_000;
            if *sign == b'+' { length } else { -length }
        }
        _ => return None,
    };
    let time = ((hour * 60 + minute) * 60 + second) * 1000 + ms;
    let whole = days * DAY_MS + time - offset;
    (MS_MIN..=MS_MAX).contains(&whole).then_some(whole)
}

/// Writes milliseconds since 1970 as text such as `2026-11-21T17:00:00.000Z`.
///
/// # Errors
/// The errors of the formatter.
pub fn write(ms: i64, f: &mut impl fmt::Write) -> fmt::Result {
    let (year, month, day) = civil_from_days(ms.div_euclid(DAY_MS));
    let of_day = ms.rem_euclid(DAY_MS);
    let (seconds, ms) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(
        f,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
    )
}

/// Returns the number of days from 1970 to a date of the Gregorian calendar; `None` for a date that
/// does not exist (Howard Hinnant, "chrono-compatible low-level date algorithms",
/// `days_from_civil`).
fn days_from_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Returns the date for a number of days since 1970 (`civil_from_days` of "chrono-compatible
/// low-level date algorithms").
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}
