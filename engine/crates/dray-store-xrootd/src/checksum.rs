//! Requests a server's checksum of a file, so that a copy can be compared with it.

use crate::client::client;
use crate::url::{Url, asked};
use dray_core::{Checksum, ErrorKind, RelPath, Result};

/// Names of algorithms to request, in this order, if dray does not support the server's default
/// algorithm.
pub(crate) const NAMES: &[&str] = &["adler32", "crc32c"];

/// Requests the server's checksum of the file at `path`. A server without a stored checksum reads
/// the whole file first, so the call may take as long as such a read. Returns `None` if the server
/// has no checksum of an algorithm that dray supports.
///
/// # Errors
/// Errors of the server, if it refuses the request or does not answer; errors of loading the client
/// library.
pub fn checksum(url: &Url, path: &RelPath) -> Result<Option<Checksum>> {
    let ask = |name: Option<&str>| {
        let name = name.map(|name| format!("cks.type={name}"));
        let query = asked(path, [name.as_deref(), Some(url.cgi())])?;
        client()?.checksum(&url.login(0), &query)
    };
    let mut refused = None;
    // Request the default algorithm first, because the server usually stores its checksum.
    for name in [None].into_iter().chain(NAMES.iter().copied().map(Some)) {
        match ask(name) {
            Ok(answer) => {
                if let Some(known) = read(&answer) {
                    return Ok(Some(known));
                }
            }
            Err(error) if has_none(error.kind) => {}
            // The error does not depend on the algorithm, so another request would fail too.
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Returns true if the server may have refused because of the algorithm.
const fn has_none(kind: ErrorKind) -> bool {
    is_unknown(kind) || matches!(kind, ErrorKind::ChecksumMismatch)
}

/// Returns true if the server refused because of the algorithm, and not because of this file.
pub(crate) const fn is_unknown(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unsupported | ErrorKind::InvalidRequest)
}

/// Parses text such as "adler32 37dc018b". Returns `None` if dray does not support the algorithm.
pub(crate) fn read(answer: &str) -> Option<Checksum> {
    let mut words = answer.split_ascii_whitespace();
    let (name, value) = (words.next()?, words.next()?);
    Checksum::parse(&format!("{name}:{value}"))
}

#[cfg(test)]
mod tests {
    use super::read;
    use dray_core::Sums;

    #[test]
    fn answers_are_read() {
        let sums = Sums::of(b"123456789");
        assert!(read("adler32 091e01de\n").expect("ours").matches(&sums));
        assert!(read("crc32c e3069283").expect("ours").matches(&sums));
        for other in [
            "md5 25f9e794323b453885f5181f1b624d0b",
            "adler32",
            "adler32 xyz",
            "",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
