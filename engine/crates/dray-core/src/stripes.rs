//! Stripes that a user chose for new files of a destination.
//!
//! The command line, the configuration, the API and the wire protocol contain a choice as text. The
//! store of a parallel file system creates the stripes.

use crate::units;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Smallest stripe size, and the unit of stripe sizes, in bytes (`LOV_MIN_STRIPE_SIZE` of Lustre).
pub const STRIPE_BYTES_MIN: u64 = 64 * 1024;

/// Maximum number of stripes of a file (`LOV_MAX_STRIPE_COUNT` of Lustre).
pub const STRIPES_MAX: u16 = 2000;

/// Maximum length in bytes of the text of a choice.
pub const CHOICE_BYTES_MAX: usize = 64;

/// Stripes of new files, chosen by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StripeChoice {
    /// A new file gets the stripes of its source file.
    Source,
    /// All new files get these stripes.
    Fixed {
        /// Number of stripes: 1 to [`STRIPES_MAX`], or `u16::MAX` for all storage targets.
        count: u16,
        /// Size of a stripe in bytes, a multiple of [`STRIPE_BYTES_MIN`]; zero is the default of
        /// the file system.
        stripe_bytes: u32,
    },
}

/// Reason why a text does not describe stripes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeError(pub String);

impl fmt::Display for StripeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for StripeError {}

/// Converts the size of a stripe to 32 bits. Zero stands for the default of the file system.
///
/// # Errors
/// [`StripeError`] if the size is not a multiple of [`STRIPE_BYTES_MIN`] or has more than 32 bits.
pub fn stripe_bytes(bytes: u64) -> Result<u32, StripeError> {
    match u32::try_from(bytes) {
        Ok(size) if bytes.is_multiple_of(STRIPE_BYTES_MIN) => Ok(size),
        _ => Err(StripeError(format!(
            "the stripe size is {bytes} bytes, but it must be a multiple of 64 KiB and less than 4 \
                GiB"
        ))),
    }
}

impl FromStr for StripeChoice {
    type Err = StripeError;

    /// Parses `source`, `COUNT` or `COUNT:SIZE`. `COUNT` is a number, or `all` for all targets.
    fn from_str(text: &str) -> Result<Self, StripeError> {
        if text == "source" {
            return Ok(Self::Source);
        }
        let (count, size) = match text.split_once(':') {
            Some((count, size)) => (count, units::size(size).map_err(StripeError)?),
            None => (text, 0),
        };
        let wrong = || {
            StripeError(
                "write `source`, COUNT or COUNT:SIZE, where COUNT is a number from 1 to 2000, or \
                    `all`"
                    .to_owned(),
            )
        };
        let count = match count {
            "all" => u16::MAX,
            count => {
                let count = count.parse().map_err(|_| wrong())?;
                (1..=STRIPES_MAX)
                    .contains(&count)
                    .then_some(count)
                    .ok_or_else(wrong)?
            }
        };
        Ok(Self::Fixed {
            count,
            stripe_bytes: stripe_bytes(size)?,
        })
    }
}

impl TryFrom<String> for StripeChoice {
    type Error = StripeError;

    fn try_from(text: String) -> Result<Self, StripeError> {
        text.parse()
    }
}

impl From<StripeChoice> for String {
    fn from(choice: StripeChoice) -> Self {
        choice.to_string()
    }
}

/// Writes a text that the parser reads as the same choice. The size is in bytes.
impl fmt::Display for StripeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Fixed {
            count,
            stripe_bytes,
        } = self
        else {
            return f.write_str("source");
        };
        match *count {
            u16::MAX => f.write_str("all")?,
            count => write!(f, "{count}")?,
        }
        match stripe_bytes {
            0 => Ok(()),
            bytes => write!(f, ":{bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CHOICE_BYTES_MAX, StripeChoice};

    #[test]
    fn a_choice_is_read_as_it_was_written() {
        for (text, written) in [
            ("source", "source"),
            ("1", "1"),
            ("2000", "2000"),
            ("all", "all"),
            ("4:16MiB", "4:16777216"),
            ("all:4294901760", "all:4294901760"),
            ("4:0", "4"),
        ] {
            let choice: StripeChoice = text.parse().expect(text);
            assert_eq!(choice.to_string(), written);
            assert_eq!(written.parse(), Ok(choice));
            assert!(written.len() <= CHOICE_BYTES_MAX);
        }
        for wrong in [
            "", "0", "2001", "65535", "-1", "4:", "4:1000", "4:4GiB", "4:x", "all:", ":1MiB",
            "Source", "4:1MiB:1", " 4",
        ] {
            assert!(wrong.parse::<StripeChoice>().is_err(), "{wrong}");
        }
    }
}
