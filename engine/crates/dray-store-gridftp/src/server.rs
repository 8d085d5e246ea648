//! The connections to one server.

use crate::facts::{self, Facts, Kind};
use crate::failure::Failure;
use crate::library::library;
use crate::session::Session;
use crate::url::{Url, for_library};
use dray_core::connections::{Direction, Flow, Rule};
use dray_core::lock::LockExt;
use dray_core::{Checksum, End, Error, ErrorKind, Name, RelPath, Result};
use dray_store::FolderEntries;
use dray_store::connections::{ConnectionOptions, Connections};
use std::ffi::CStr;
use std::sync::Mutex;

/// Maximum number of control connections. A server limits the connections of all its clients
/// (`connections_max`). The value is estimated, not measured.
const CONNECTIONS_MAX: usize = 8;

/// Algorithm to request. Servers also offer MD5 and SHA, which dray does not compute.
const ALGORITHM: &CStr = c"ADLER32";

/// A server, and its control connections. Each connection runs one operation at a time.
pub(crate) struct Server {
    /// URL of the root of the store.
    root: Url,
    pub(crate) end: End,
    sessions: Connections<Mutex<Session>>,
}

impl Server {
    /// Creates the server. Sends nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the library cannot be loaded.
    pub(crate) fn new(root: Url, end: End) -> Result<Self> {
        library()?;
        let options = ConnectionOptions {
            most: CONNECTIONS_MAX,
            depth: 1,
            rule: Rule::Automatic,
        };
        Ok(Self {
            root,
            end,
            sessions: Connections::new(&options, |_| Session::new().map(Mutex::new)),
        })
    }

    /// Runs an operation that moves about `bytes` bytes on a free connection.
    fn run<T>(
        &self,
        path: &RelPath,
        operation: &str,
        bytes: u64,
        work: impl FnOnce(&mut Session, &CStr) -> Result<T, Failure>,
    ) -> Result<T> {
        let url = for_library(&self.root, path, self.end)?;
        let flow = Flow {
            direction: Direction::Read,
            waits: false,
        };
        let lease = self.sessions.lease(flow, bytes)?;
        let done = work(&mut lease.lock_unpoisoned(), &url);
        match done {
            Ok(done) => {
                lease.carried();
                Ok(done)
            }
            Err(failure) => {
                if failure.is_of_the_connection() {
                    lease.broken();
                }
                Err(failure.at(self.end, operation, path))
            }
        }
    }

    /// Returns the facts about a file or folder.
    pub(crate) fn look(&self, path: &RelPath, operation: &str) -> Result<Facts> {
        self.run(path, operation, 0, |session, url| {
            let answer = session.facts(url)?;
            let found = facts::parse(answer.trim_ascii_start());
            let (facts, _) = found.ok_or(Failure::Broken("the answer to MLST is malformed"))?;
            Ok(Facts {
                // Some servers call the folder that was asked for `cdir`.
                kind: match facts.kind {
                    Kind::Dot => Kind::Folder,
                    kind => kind,
                },
                ..facts
            })
        })
    }

    /// Returns the entries of a folder. An entry without a valid name has an error.
    pub(crate) fn entries(
        &self,
        folder: &RelPath,
        operation: &str,
    ) -> Result<FolderEntries<Facts>> {
        let listing = self.run(folder, operation, 0, |session, url| session.entries(url))?;
        let mut is_folder = false;
        let mut found = FolderEntries::default();
        for line in lines(&listing) {
            let Some((facts, name)) = facts::parse(line) else {
                // A name with a line break has this effect. The other lines are still valid.
                let broken = Failure::Broken("a line of the listing is malformed");
                found.error = Some(broken.at(self.end, operation, folder));
                continue;
            };
            match facts.kind {
                Kind::Dot => is_folder = true,
                _ => found.entries.push((Name::new(name), facts)),
            }
        }
        // A server lists a file as one line about the file.
        if !is_folder && self.look(folder, operation)?.kind != Kind::Folder {
            let error = Error::new(ErrorKind::NotADirectory, self.end, operation).file(folder);
            return Err(error
                .cause("the path is a file, not a folder")
                .remedy("write the URL without a slash at the end"));
        }
        Ok(found)
    }

    /// Reads a range of a file.
    pub(crate) fn read(&self, path: &RelPath, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.run(path, "read the file", into.len() as u64, |session, url| {
            session.read(url, offset, into)
        })
    }

    /// Returns the server's Adler-32 checksum of a file. Returns `None` if the server does not
    /// compute this checksum.
    pub(crate) fn checksum(&self, path: &RelPath) -> Result<Option<Checksum>> {
        let operation = "request the checksum of the file";
        let answer = self.run(path, operation, 0, |session, url| {
            session.checksum(url, ALGORITHM)
        });
        match answer {
            Ok(text) => Ok(Checksum::parse(&format!("adler32:{text}"))),
            Err(error) if error.kind == ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Splits a listing into lines. Lines end with CR and LF, because a name may contain one of them.
fn lines(listing: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = listing;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.windows(2).position(|pair| pair == b"\r\n");
        let (line, after) = match end {
            Some(end) => (&rest[..end], &rest[end + 2..]),
            None => (rest, &rest[..0]),
        };
        rest = after;
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn a_line_ends_with_both_characters() {
        let found: Vec<&[u8]> = lines(b"a\nb\r\nc\rd\r\ne").collect();
        assert_eq!(found, [&b"a\nb"[..], b"c\rd", b"e"]);
        assert_eq!(lines(b"").count(), 0);
    }
}
