//! The certificate with which the endpoint proves its identity. Opens the certificate at the start,
//! reads it again when its files change, and warns before it expires.
//!
//! Non-goals: renewing a certificate at its authority, which is the task of another program.
//!
//! Invariant owned here: the endpoint presents only pairs of a certificate and a key that were
//! checked together. If a new pair fails a check, the previous pair stays in use.

use crate::metrics::Metrics;
use dray_auth::x509::Validity;
use dray_config::Config;
use dray_core::{End, Error, ErrorKind, Result};
use dray_net::{Identity, Presented};
use dray_queue::clock;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval between checks of the files. A check makes two calls of `stat`, which cost nothing
/// compared with the other work of an endpoint.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Number of seconds of a day.
const DAY: u64 = 86_400;

/// Opens the certificate and the key that the configuration names. Without such files, opens or
/// creates the endpoint's own key.
///
/// # Errors
/// If a file cannot be read or created, if a certificate of the chain cannot be parsed, or if the
/// key does not belong to the certificate.
pub(crate) fn open(config: &Config) -> Result<Presented> {
    match Files::of(config) {
        Some(files) => files.open(),
        None => {
            let names = std::iter::once(&config.name).chain(&config.aliases);
            let names: Vec<String> = names.cloned().collect();
            let identity = Identity::load_or_create_for(config.identity_folder(), &names)?;
            Presented::new(identity)
        }
    }
}

/// The files of the certificate chain and of its key.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(config: &Config) -> Option<Self> {
        let (certificate, key) = (config.tls.certificate.clone()?, config.tls.key.clone()?);
        Some(Self { certificate, key })
    }

    fn read(&self) -> Result<Identity> {
        Identity::from_files(&self.certificate, &self.key)
    }

    fn open(&self) -> Result<Presented> {
        let identity = self.read()?;
        identity.validity().map_err(|error| self.named(error))?;
        Presented::new(identity).map_err(|error| self.named(error))
    }

    /// Adds the names of the files to the cause of an error about the pair.
    fn named(&self, error: Error) -> Error {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let cause = format!("{certificate}, {key}: {}", error.cause);
        error.cause(cause)
    }

    fn seen(&self) -> Seen {
        [&self.certificate, &self.key].map(|path| FileState::of(path))
    }
}

/// Properties of a file that change when the file is replaced or written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Times of the last change of the content and of the inode: seconds and nanoseconds.
    times: [i64; 4],
}

impl FileState {
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.size(),
            times: [
                found.mtime(),
                found.mtime_nsec(),
                found.ctime(),
                found.ctime_nsec(),
            ],
        })
    }
}

/// States of the certificate's and the key's file. `None` for a file that does not exist.
type Seen = [Option<FileState>; 2];

/// A pair of files that failed a check.
struct Rejected {
    seen: Seen,
    is_reported: bool,
}

/// Observations of earlier checks.
#[derive(Default)]
struct Watch {
    /// States of the files from which the present certificate was read.
    used: Option<Seen>,
    rejected: Option<Rejected>,
    /// Time of the last warning about the expiry, in seconds since 1970.
    warned: Option<u64>,
}

/// Reads the certificate again when its files change.
pub(crate) struct Renewal {
    files: Option<Files>,
    presented: Presented,
    metrics: Arc<Metrics>,
}

impl Renewal {
    /// Creates the part that replaces the identity in `presented`.
    pub(crate) fn new(config: &Config, presented: Presented, metrics: Arc<Metrics>) -> Self {
        let renewal = Self {
            files: Files::of(config),
            presented,
            metrics,
        };
        // Set the metric before the first call of an administrator can read it.
        renewal.note_expiry();
        renewal
    }

    /// Sets the metric of the expiry. Returns the validity of the present certificate.
    fn note_expiry(&self) -> Option<Validity> {
        let validity = self.presented.identity().validity().ok()?;
        let expires = i64::try_from(validity.not_after).unwrap_or(i64::MAX);
        let metric = &self.metrics.certificate_expires;
        metric.store(expires, Ordering::Relaxed);
        Some(validity)
    }

    /// Checks the files at regular intervals, until `sleep` returns false.
    pub(crate) fn run(&self, sleep: &dyn Fn(Duration) -> bool) {
        let mut watch = Watch::default();
        loop {
            self.look(&mut watch, now());
            if !sleep(LOOK_INTERVAL) {
                return;
            }
        }
    }

    fn look(&self, watch: &mut Watch, now: u64) {
        if let Some(files) = &self.files {
            self.look_at(files, watch, now);
        }
        let (Some(validity), Some(files)) = (self.note_expiry(), &self.files) else {
            return;
        };
        let is_silent = |warned: u64| now.saturating_sub(warned) < DAY;
        if let Some(warning) = validity.warning(now)
            && !watch.warned.is_some_and(is_silent)
        {
            watch.warned = Some(now);
            tracing::warn!(
                "the certificate {} {warning}; callers that check certificates refuse an expired \
                    certificate: write a new certificate to this file",
                files.certificate.display()
            );
        }
    }

    /// Reads the files if they have changed.
    fn look_at(&self, files: &Files, watch: &mut Watch, now: u64) {
        // Note the states before the files are read. A change during the read is then found by the
        // next check.
        let seen = files.seen();
        let is_new = watch.used.as_ref() != Some(&seen);
        match is_new.then(|| self.load(files, now)) {
            None => watch.rejected = None,
            Some(Ok(is_renewed)) => {
                watch.used = Some(seen);
                watch.rejected = None;
                if is_renewed {
                    watch.warned = None;
                }
            }
            Some(Err(error)) => {
                // A program that renews a certificate writes two files, one after the other. So
                // report a pair only if it stays wrong until the next check.
                let earlier = watch.rejected.take().filter(|earlier| earlier.seen == seen);
                let is_reported = earlier.as_ref().is_some_and(|earlier| earlier.is_reported);
                if earlier.is_some() && !is_reported {
                    tracing::warn!(
                        "cannot use the new certificate: {error}; the endpoint continues with the \
                            certificate that it loaded before"
                    );
                }
                watch.rejected = Some(Rejected {
                    seen,
                    is_reported: earlier.is_some(),
                });
            }
        }
        let is_rejected = watch.rejected.as_ref().is_some_and(|one| one.is_reported);
        let rejected = &self.metrics.certificate_rejected;
        rejected.store(i64::from(is_rejected), Ordering::Relaxed);
    }

    /// Reads the files, and presents their certificate to new connections. Returns true if the
    /// certificate differs from the previous one.
    ///
    /// # Errors
    /// If the files hold no usable pair of a certificate and a key. The previous pair then stays in
    /// use.
    fn load(&self, files: &Files, now: u64) -> Result<bool> {
        let new = files.read()?;
        let old = self.presented.identity();
        let is_renewed = new.certificates() != old.certificates();
        let validity = new.validity().map_err(|error| files.named(error))?;
        if is_renewed {
            check_validity(&files.certificate, validity, now)?;
        }
        let key = new.fingerprint();
        (self.presented.replace(new)).map_err(|error| files.named(error))?;
        if !is_renewed {
            return Ok(false);
        }
        let file = files.certificate.display();
        let left = validity.left(now);
        if key == old.fingerprint() {
            tracing::info!("the certificate {file} was renewed; it expires in {left}");
        } else {
            tracing::warn!(
                "the certificate {file} was renewed with a new key, {key}; it expires in {left}. \
                    Callers that pin the old key must pin the new key, and tickets that are bound \
                    to the old key must be replaced"
            );
        }
        Ok(true)
    }
}

/// Checks that all certificates of a chain are valid now.
fn check_validity(certificate: &Path, validity: Validity, now: u64) -> Result<()> {
    let Some(problem) = validity.problem(now) else {
        return Ok(());
    };
    let operation = format!("use the certificate {}", certificate.display());
    Err(Error::new(ErrorKind::InvalidRequest, End::Here, operation)
        .cause(format!("a certificate of the chain {problem}"))
        .remedy("write a certificate that is valid now, or correct the clock of this host"))
}

/// Returns the present time in seconds since 1970.
fn now() -> u64 {
    u64::try_from(clock::now().as_ms() / 1_000).unwrap_or(0)
}

#[cfg(test)]
mod tests;
