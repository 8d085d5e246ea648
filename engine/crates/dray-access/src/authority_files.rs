//! The authorities of web servers, in memory. The files are read again only after a change.
//!
//! Invariant owned here: to use authorities that have not changed, nothing is read but the state of
//! their files.

use dray_core::Result;
use dray_core::lock::LockExt;
use dray_net::Authority;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Files and folders in which Linux distributions keep the system's authorities.
const SYSTEM: [&str; 5] = [
    "/etc/ssl/certs",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

/// Variables that name other files of the system's authorities.
const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// State of a file: inode, size in bytes, and modification time in seconds and nanoseconds. `None`
/// if the file does not exist.
type State = Option<(u64, u64, i64, i64)>;

/// Reads the authorities in a file or folder, or those of the system.
type Reads = fn(Option<&Path>) -> Result<Authority>;

/// The authorities in a file or folder, or those of the system.
pub(super) struct AuthorityFiles {
    named: Option<PathBuf>,
    reads: Reads,
    watched: Vec<PathBuf>,
    kept: Mutex<Option<(Vec<State>, Authority)>>,
}

impl AuthorityFiles {
    /// `named` is the configured file or folder; `None` means the system's authorities.
    /// `reads` reads them; this function reads nothing.
    pub(super) fn new(named: Option<PathBuf>, reads: Reads) -> Self {
        let watched = match &named {
            Some(path) => vec![path.clone()],
            None => {
                let variables = VARIABLES.iter().filter_map(std::env::var_os);
                let variables = variables.map(PathBuf::from);
                variables.chain(SYSTEM.map(PathBuf::from)).collect()
            }
        };
        Self {
            named,
            reads,
            watched,
            kept: Mutex::default(),
        }
    }

    fn states(&self) -> Vec<State> {
        let watched = self.watched.iter();
        let state = |path: &PathBuf| {
            let state = path.metadata().ok()?;
            Some((state.ino(), state.size(), state.mtime(), state.mtime_nsec()))
        };
        watched.map(state).collect()
    }

    /// Returns the authorities. Reads the files only if they have changed since the last call.
    ///
    /// # Errors
    /// If there is no authority, or if a file cannot be read.
    pub(super) fn read(&self) -> Result<Authority> {
        // Before the files are read, so that a change during the read is seen by the next call.
        let states = self.states();
        let mut kept = self.kept.lock_unpoisoned();
        if let Some((known, authority)) = &*kept
            && *known == states
        {
            return Ok(authority.clone());
        }
        let authority = (self.reads)(self.named.as_deref())?;
        *kept = Some((states, authority.clone()));
        Ok(authority)
    }

    #[cfg(test)]
    fn is_kept(&self) -> bool {
        let kept = self.kept.lock_unpoisoned();
        kept.as_ref()
            .is_some_and(|(known, _)| *known == self.states())
    }
}

#[cfg(test)]
mod tests {
    use super::AuthorityFiles;
    use crate::authorities;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    #[test]
    fn authorities_are_read_again_only_after_a_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let der = include_bytes!("../../dray-auth/src/x509/lists/rsa2048.crt.der");
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            STANDARD.encode(der)
        );
        let file = folder.path().join("ca.pem");
        let files = AuthorityFiles::new(Some(file.clone()), authorities);
        assert!(files.read().is_err(), "there is no file yet");
        std::fs::write(&file, &pem).expect("written");
        assert!(!files.is_kept());
        files.read().expect("read");
        assert!(files.is_kept(), "the next call reads nothing");
        // A changed file is read: this one is damaged.
        std::fs::write(&file, "nothing").expect("written");
        assert!(!files.is_kept());
        assert!(files.read().is_err());
        std::fs::write(&file, format!("{pem}\n")).expect("written");
        files.read().expect("read again");
    }

    #[test]
    fn the_authorities_of_the_system_are_kept() {
        let files = AuthorityFiles::new(None, authorities);
        if files.read().is_ok() {
            assert!(files.is_kept());
        }
    }
}
