//! Read requests about paths on a server.

use crate::client::{Entries, RemoteState, client};
use crate::url::{OWN, Url, asked};
use dray_core::{End, Error, ErrorKind, RelPath, Result};

/// The files of a server or of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) url: Url,
    /// End of the transfer that errors report.
    pub(crate) end: End,
}

impl Files {
    pub(crate) fn error(&self, kind: ErrorKind, operation: &str, path: &RelPath) -> Error {
        Error::new(kind, self.end, operation).file(path)
    }

    /// Returns a path in the form of the server's file system requests.
    pub(crate) fn asked(&self, path: &RelPath) -> Result<Vec<u8>> {
        asked(path, [Some(self.url.cgi())])
    }

    pub(crate) fn look(&self, path: &RelPath) -> Result<RemoteState> {
        client()?.look(&self.url.login(0), &self.asked(path)?)
    }

    pub(crate) fn entries(&self, folder: &RelPath) -> Result<Entries> {
        client()?.list(&self.url.login(0), &self.asked(folder)?)
    }

    /// Returns all entries of a folder, including partial files and logs.
    pub(crate) fn control_entries(&self, folder: &RelPath) -> Result<Entries> {
        let mut asked = self.asked(folder)?;
        if !asked.ends_with(OWN.as_bytes()) {
            asked.push(if asked.contains(&b'?') { b'&' } else { b'?' });
            asked.extend(OWN.as_bytes());
        }
        client()?.list(&self.url.login(0), &asked)
    }
}
