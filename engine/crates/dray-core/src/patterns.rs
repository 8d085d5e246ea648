//! Limits on include and exclude patterns from a command line, the control API or a peer.
//!
//! Invariant: patterns are counted before they are compiled. A plain pattern needs memory for its
//! own bytes only. A compiled pattern with wildcards needs several hundred bytes for each byte of
//! its text.

use crate::error::{End, Error, ErrorKind, Result};

/// Maximum number of include patterns of one request. The exclude patterns of a request have the
/// same maximum number.
pub const PATTERNS_MAX: usize = 1024;

/// Maximum length of a pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 4096;

/// Maximum number of patterns with wildcards of one request, include and exclude together.
pub const WILD_PATTERNS_MAX: usize = 256;

/// Maximum total length in bytes of the patterns with wildcards of one request.
pub const WILD_BYTES_MAX: usize = 8 * 1024;

/// Memory in bytes for each byte of a pattern with wildcards after compilation (measured: at most
/// 1000).
pub const COMPILED_BYTES_PER_BYTE: usize = 1 << 10;

/// Checks the limits. Returns the total length in bytes of the patterns with wildcards.
///
/// # Errors
/// [`ErrorKind::LimitExceeded`] with the exceeded limit.
pub fn check(include: &[String], exclude: &[String]) -> Result<usize> {
    for (name, patterns) in [("include", include), ("exclude", exclude)] {
        if patterns.len() > PATTERNS_MAX {
            let cause = format!(
                "the request has {} {name} patterns; at most {PATTERNS_MAX} are allowed",
                patterns.len()
            );
            return Err(over(cause));
        }
        if let Some(long) = patterns.iter().find(|text| text.len() > PATTERN_BYTES_MAX) {
            let cause = format!(
                "an {name} pattern has {} bytes; at most {PATTERN_BYTES_MAX} bytes are allowed",
                long.len()
            );
            return Err(over(cause));
        }
    }
    let wild = || {
        let all = include.iter().chain(exclude);
        all.filter(|text| is_wild(text))
    };
    let count = wild().count();
    if count > WILD_PATTERNS_MAX {
        let cause = format!(
            "{count} patterns have wildcards; at most {WILD_PATTERNS_MAX} such patterns are allowed"
        );
        return Err(over(cause));
    }
    let bytes: usize = wild().map(String::len).sum();
    if bytes > WILD_BYTES_MAX {
        let cause = format!(
            "the patterns with wildcards have {bytes} bytes in total; at most {WILD_BYTES_MAX} \
                bytes are allowed"
        );
        return Err(over(cause));
    }
    Ok(bytes)
}

/// Returns true if a pattern must be compiled. A plain name, or a suffix such as `*.root`, needs
/// only a look-up.
fn is_wild(text: &str) -> bool {
    let rest = text.strip_prefix("*.").unwrap_or(text);
    rest.bytes().any(|byte| b"*?[{\\".contains(&byte))
}

fn over(cause: String) -> Error {
    Error::new(ErrorKind::LimitExceeded, End::Here, "read the patterns")
        .cause(cause)
        .remedy("use fewer or shorter patterns, or split the transfer")
}

#[cfg(test)]
mod tests {
    use super::{PATTERNS_MAX, WILD_BYTES_MAX, WILD_PATTERNS_MAX, check};

    fn many(text: &str, count: usize) -> Vec<String> {
        vec![text.to_owned(); count]
    }

    #[test]
    fn plain_names_and_suffixes_are_cheap_and_wildcards_are_not() {
        let names = many("run-0001/file-0001", PATTERNS_MAX);
        assert!(check(&names, &many("*.root", PATTERNS_MAX)).is_ok());
        assert!(check(&many("a", PATTERNS_MAX + 1), &[]).is_err());
        assert!(check(&many("a*", WILD_PATTERNS_MAX), &[]).is_ok());
        assert!(check(&many("a*", WILD_PATTERNS_MAX), &many("b?", 1)).is_err());
        assert!(check(&many(&"*a".repeat(1500), 2), &[]).is_ok());
        let wild = "*a".repeat(WILD_BYTES_MAX / 8);
        assert!(check(&many(&wild, 4), &many("?", 1)).is_err());
        assert!(check(&[], &many(&"a".repeat(5000), 1)).is_err());
    }
}
