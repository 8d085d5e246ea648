//! The types of single values in the configuration file. Each value is checked when it is parsed,
//! so an error can name the line of the value.

use dray_core::units;
use dray_runtime::assembly::{THREADS_MAX, Threads};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Maximum length of a root's name, in bytes.
const ROOT_NAME_BYTES_MAX: usize = 64;

macro_rules! number_with_unit {
    ($(#[$doc:meta])* $name:ident, $read:path, $example:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Read;
                impl Visitor<'_> for Read {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a number of bytes, or text such as ", $example))
                    }
                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$name, E> {
                        self.visit_str(&value.to_string())
                    }
                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<$name, E> {
                        self.visit_str(&value.to_string())
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $read(text).map($name).map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Read)
            }
        }
    };
}

number_with_unit!(
    /// A number of bytes, such as `4096`, `"64KiB"` or `"1GiB"`.
    Size,
    units::size,
    "\"1GiB\""
);
number_with_unit!(
    /// A number of bytes per second, such as `"100MiB"` or `"100MiB/s"`. Never zero.
    Rate,
    units::rate,
    "\"100MiB/s\""
);

/// Number of threads of each storage target of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadsOf(pub Threads);

impl<'de> Deserialize<'de> for ThreadsOf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = ThreadsOf;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 1 to {THREADS_MAX}, or \"auto\"")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ThreadsOf, E> {
                let count = u32::try_from(value).ok();
                let count = count.filter(|count| (1..=THREADS_MAX).contains(count));
                let wrong = || E::invalid_value(de::Unexpected::Signed(value), &self);
                Ok(ThreadsOf(Threads::Fixed(count.ok_or_else(wrong)?)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ThreadsOf, E> {
                match text {
                    "auto" => Ok(ThreadsOf(Threads::Tuned)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// The name of an exported root: 1 to 64 characters of `[A-Za-z0-9._-]`, not beginning with a dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct RootName(String);

impl RootName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RootName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let fits = (1..=ROOT_NAME_BYTES_MAX).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
            && !text.starts_with('.');
        if fits {
            Ok(Self(text))
        } else {
            Err(format!(
                "{text:?} is not a root's name: 1 to {ROOT_NAME_BYTES_MAX} characters of \
                 [A-Za-z0-9._-], not beginning with a dot"
            ))
        }
    }
}

impl fmt::Display for RootName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An address `HOST:PORT`. An IPv6 address is in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Address(String);

impl Address {
    /// Returns the default address, which only this host can reach.
    #[must_use]
    pub fn loopback() -> Self {
        Self(format!("127.0.0.1:{}", dray_open::locations::PORT))
    }

    /// Returns `HOST:PORT`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Address {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        dray_open::locations::with_port(&text)
            .map(Self)
            .ok_or_else(|| {
                format!(
                    "{text:?} is not an address: write HOST[:PORT], with an IPv6 address in \
                        brackets"
                )
            })
    }
}

/// A set of owners in a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Owners {
    /// No owner.
    #[default]
    Nobody,
    /// Every owner.
    All,
    /// These owners.
    Named(Vec<String>),
}

impl Owners {
    /// Returns true if `owner` is in the set.
    #[must_use]
    pub fn include(&self, owner: &str) -> bool {
        match self {
            Self::Nobody => false,
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| name == owner),
        }
    }
}

impl<'de> Deserialize<'de> for Owners {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "\"*\" for all owners, or a list of owners")]
        enum Written {
            One(String),
            Many(Vec<String>),
        }
        match Written::deserialize(deserializer)? {
            Written::One(all) if all == "*" => Ok(Self::All),
            Written::One(name) => Err(de::Error::custom(format!(
                "write the list [{name:?}], or \"*\" for all owners"
            ))),
            Written::Many(names) if names.iter().any(|name| name == "*") => Ok(Self::All),
            Written::Many(names) if names.is_empty() => Ok(Self::Nobody),
            Written::Many(names) => Ok(Self::Named(names)),
        }
    }
}

/// The tiers of staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The small and fast tier, such as a burst buffer or flash storage.
    Fast,
    /// The large and slow tier, such as disks or the disk cache of a tape library.
    Slow,
}

/// The storage target of a folder, written `FOLDER=TARGET`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TargetFolder {
    /// The folder, as an absolute path or relative to its root.
    pub folder: PathBuf,
    /// The storage target of the folder.
    pub target: String,
}

impl TryFrom<String> for TargetFolder {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.rsplit_once('=') {
            Some((folder, target)) if !folder.is_empty() && !target.is_empty() => Ok(Self {
                folder: folder.into(),
                target: target.to_owned(),
            }),
            _ => Err(format!("{text:?} does not have the form FOLDER=TARGET")),
        }
    }
}

/// The maximum rate of a storage target, written `TARGET=RATE`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TargetLimit {
    /// The storage target.
    pub target: String,
    /// Maximum bytes per second.
    pub rate: u64,
}

impl TryFrom<String> for TargetLimit {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let (target, rate) = text
            .rsplit_once('=')
            .ok_or_else(|| format!("{text:?} does not have the form TARGET=RATE"))?;
        Ok(Self {
            target: target.to_owned(),
            rate: units::rate(rate)?,
        })
    }
}
