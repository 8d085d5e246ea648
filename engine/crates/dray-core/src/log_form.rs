//! Form of an object log: how many files a log consists of, and how it records completed objects.
//!
//! The mechanisms and methods are those of FT-LADS (Kasu et al. 2019, sections IV-A and IV-B), with
//! one addition: the method `ranges`. Asynchronous logging is that of section V-B. A log without
//! sums contains only the numbers of objects, as the logs of the paper do.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// Number of files of one transaction if the user names no number (Kasu et al. 2019, section
/// VI-A-4).
pub const TRANSACTION_FILES_USUAL: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// Maximum number of files of one transaction. The value is estimated, not measured.
pub const TRANSACTION_FILES_MAX: u32 = 1 << 16;

/// Number of logs that share the records of completed objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogMechanism {
    /// One log for each file.
    File,
    /// One log for each group of this many files.
    Transaction(NonZeroU32),
    /// One log for all files.
    Universal,
}

/// Representation of completed objects in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogMethod {
    /// A run of objects that touch each other: the number of the first object, and the count.
    Ranges,
    /// The object's number in decimal digits, followed by a line feed.
    Char,
    /// The object's number as an integer of 64 bits.
    Int,
    /// The object's number with a variable length (unsigned LEB128).
    Enc,
    /// The object's number as an integer of 32 bits.
    Binary,
    /// A bit of the object in an array of words of 8 bits (Kasu et al. 2019, algorithm 1).
    Bit8,
    /// A bit of the object in an array of words of 64 bits (Kasu et al. 2019, algorithm 1).
    Bit64,
}

impl LogMethod {
    /// All methods.
    pub const ALL: [Self; 7] = [
        Self::Ranges,
        Self::Char,
        Self::Int,
        Self::Enc,
        Self::Binary,
        Self::Bit8,
        Self::Bit64,
    ];

    /// Returns the word for the method on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ranges => "ranges",
            Self::Char => "char",
            Self::Int => "int",
            Self::Enc => "enc",
            Self::Binary => "binary",
            Self::Bit8 => "bit8",
            Self::Bit64 => "bit64",
        }
    }
}

/// Mechanism, method and options of an object log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogForm {
    /// Number of logs that share the records.
    pub mechanism: LogMechanism,
    /// Representation of completed objects.
    pub method: LogMethod,
    /// True if the log contains the checksums of each object. Without them, a resume cannot compare
    /// the recorded ranges with the log.
    pub has_sums: bool,
    /// True if a thread of its own writes the log, while the next data is synced.
    pub is_async: bool,
}

/// Choice of the object log of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogChoice {
    /// A log in the destination's store, of this form.
    Stored(LogForm),
    /// A log of the default form in memory, which ends with the process. A copy that is interrupted
    /// starts over, as with LADS. Only for measurements of the cost of logs.
    Memory,
}

impl Default for LogForm {
    fn default() -> Self {
        Self::new(LogMechanism::Universal, LogMethod::Ranges)
    }
}

impl LogForm {
    /// Returns a form with sums, whose log is written synchronously.
    #[must_use]
    pub const fn new(mechanism: LogMechanism, method: LogMethod) -> Self {
        Self {
            mechanism,
            method,
            has_sums: true,
            is_async: false,
        }
    }

    /// Returns the same form without sums.
    #[must_use]
    pub const fn without_sums(self) -> Self {
        Self {
            has_sums: false,
            ..self
        }
    }

    /// Returns the same form, written asynchronously.
    #[must_use]
    pub const fn asynchronous(self) -> Self {
        Self {
            is_async: true,
            ..self
        }
    }

    /// Returns the mechanism in words, for example `transaction/8`.
    #[must_use]
    pub fn mechanism_words(self) -> String {
        match self.mechanism {
            LogMechanism::File => "file".to_owned(),
            LogMechanism::Transaction(TRANSACTION_FILES_USUAL) => "transaction".to_owned(),
            LogMechanism::Transaction(files) => format!("transaction/{files}"),
            LogMechanism::Universal => "universal".to_owned(),
        }
    }

    /// Returns the number of files whose completed objects are in one part log; `None` if the
    /// mechanism has no part logs.
    #[must_use]
    pub const fn files_per_part(self) -> Option<NonZeroU32> {
        match self.mechanism {
            LogMechanism::File => Some(NonZeroU32::MIN),
            LogMechanism::Transaction(files) => Some(files),
            LogMechanism::Universal => None,
        }
    }
}

impl fmt::Display for LogForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.mechanism_words(), self.method.word())?;
        f.write_str(if self.has_sums { "" } else { ":nosums" })?;
        f.write_str(if self.is_async { ":async" } else { "" })
    }
}

/// Reason why a text does not describe a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFormError(pub String);

impl fmt::Display for LogFormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LogFormError {}

impl FromStr for LogForm {
    type Err = LogFormError;

    /// Parses `MECHANISM:METHOD[:nosums][:async]`.
    fn from_str(text: &str) -> Result<Self, LogFormError> {
        let refuse = |why: &str| Err(LogFormError(why.to_owned()));
        let Some((mechanism, method)) = text.split_once(':') else {
            return refuse("write MECHANISM:METHOD, for example file:bit8");
        };
        let mut words = method.split(':');
        let method = words.next().unwrap_or_default();
        let (mut has_sums, mut is_async) = (true, false);
        for word in words {
            match word {
                "nosums" if has_sums => has_sums = false,
                "async" if !is_async => is_async = true,
                _ => {
                    return refuse(
                        "only :nosums and :async may follow the method, each at most once",
                    );
                }
            }
        }
        let mechanism = match mechanism.split_once('/') {
            None if mechanism == "file" => LogMechanism::File,
            None if mechanism == "transaction" => {
                LogMechanism::Transaction(TRANSACTION_FILES_USUAL)
            }
            None if mechanism == "universal" => LogMechanism::Universal,
            Some(("transaction", files)) => match files.parse::<NonZeroU32>() {
                Ok(files) if files.get() <= TRANSACTION_FILES_MAX => {
                    LogMechanism::Transaction(files)
                }
                _ => return refuse("a transaction has 1 to 65536 files, as in transaction/8:bit8"),
            },
            _ => {
                return refuse(
                    "the mechanisms are file, transaction (or transaction/FILES) and universal",
                );
            }
        };
        match LogMethod::ALL.into_iter().find(|one| one.word() == method) {
            Some(method) => Ok(Self {
                mechanism,
                method,
                has_sums,
                is_async,
            }),
            None => refuse("the methods are ranges, char, int, enc, binary, bit8 and bit64"),
        }
    }
}

impl TryFrom<String> for LogForm {
    type Error = LogFormError;

    fn try_from(text: String) -> Result<Self, LogFormError> {
        text.parse()
    }
}

impl From<LogForm> for String {
    fn from(form: LogForm) -> Self {
        form.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{LogForm, LogMechanism, LogMethod};
    use std::num::NonZeroU32;

    #[test]
    fn every_form_is_parsed_from_its_own_words() {
        let eight = NonZeroU32::new(8).expect("not zero");
        for mechanism in [
            LogMechanism::File,
            LogMechanism::Transaction(super::TRANSACTION_FILES_USUAL),
            LogMechanism::Transaction(eight),
            LogMechanism::Universal,
        ] {
            for method in LogMethod::ALL {
                let form = LogForm::new(mechanism, method);
                for form in [
                    form,
                    form.without_sums(),
                    form.asynchronous(),
                    form.without_sums().asynchronous(),
                ] {
                    assert_eq!(form.to_string().parse(), Ok(form));
                }
            }
        }
        let usual = "transaction/4:int".parse::<LogForm>().expect("a good form");
        assert_eq!(usual.to_string(), "transaction:int");
        assert_eq!(LogForm::default().to_string(), "universal:ranges");
        let both = "file:bit8:async:nosums"
            .parse::<LogForm>()
            .expect("a good form");
        assert_eq!(both.to_string(), "file:bit8:nosums:async");
    }

    #[test]
    fn wrong_forms_are_refused_with_the_reason() {
        for (text, why) in [
            ("bit8", "MECHANISM:METHOD"),
            ("disk:bit8", "mechanisms are file"),
            ("file/2:bit8", "mechanisms are file"),
            ("transaction/0:bit8", "1 to 65536 files"),
            ("transaction/65537:bit8", "1 to 65536 files"),
            ("file:bit16", "methods are ranges"),
            ("file:bit8:fast", "only :nosums and :async"),
            ("file:bit8:async:async", "at most once"),
            ("file:bit8:", "only :nosums and :async"),
        ] {
            let error = text.parse::<LogForm>().expect_err(text);
            assert!(error.0.contains(why), "{text}: {error}");
        }
    }
}
