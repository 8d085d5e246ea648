//! The issuers of tokens and their keys. This module decides when keys are fetched, and which calls
//! wait for them.
//!
//! If the issuer's key is known, a token is verified immediately. Otherwise the call waits until
//! newer keys are fetched. Only one task at a time sends a request to an issuer, and all calls that
//! need the answer wait for that task. Clients cannot raise the rate of these requests by sending
//! bad tokens.
//!
//! Invariant of this module: a valid token is never refused because of requests that other tokens
//! caused.

use super::Future;
use super::now;
use dray_auth::jwk::KeySet;
use dray_auth::{ExpectedLogin, Issuers, LoggedIn, Refusal, Verified};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result, Status};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Fetches the keys of one issuer.
pub(super) trait Fetch: Send + Sync {
    /// Fetches the keys. `now` is the present time in seconds since 1970.
    ///
    /// # Errors
    /// If the keys cannot be fetched or parsed.
    fn fetch(&self, now: u64) -> Future<'_, Result<KeySet>>;
}

/// The time limit and the intervals of requests to an issuer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Maximum time of one request. A call waits for keys no longer than this.
    pub(super) fetch: Duration,
    /// Minimum interval between an answer and the next request.
    pub(super) asked: Duration,
    /// Minimum interval between a failed request and the next one.
    pub(super) failed: Duration,
}

/// An issuer, and the way to fetch its keys.
pub(super) struct Source {
    /// URL of the issuer.
    pub(super) issuer: String,
    /// Fetches the issuer's keys.
    pub(super) keys: Box<dyn Fetch>,
    /// Age in seconds at which the keys are fetched again.
    pub(super) cache_seconds: u64,
    /// Additional time in seconds for which old keys are used while the issuer is unreachable.
    pub(super) stale_seconds: u64,
    /// The time limit and the intervals of requests.
    pub(super) pace: Pace,
}

#[derive(Default)]
struct Asked {
    /// Set while a request is running. The channel closes when the request ends.
    running: Option<watch::Receiver<()>>,
    /// Earliest time of the next request; `None` if a request may start immediately.
    next: Option<Instant>,
    /// True if the last request failed.
    has_failed: bool,
}

struct Known {
    source: Source,
    asked: Mutex<Asked>,
}

impl Known {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock_unpoisoned()
    }
}

/// The content of a token whose signature was verified.
trait Signed {
    /// Returns the URL of the issuer.
    fn issuer(&self) -> &str;
}

impl Signed for Verified {
    fn issuer(&self) -> &str {
        &self.issuer
    }
}

impl Signed for LoggedIn {
    fn issuer(&self) -> &str {
        &self.issuer
    }
}

/// The need for newer keys after a token was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The keys are new enough.
    No,
    /// The token is valid. Newer keys are fetched in the background.
    Soon,
    /// Newer keys must be fetched before the token is verified, if the issuer can be reached.
    First,
}

/// A cloneable handle of the issuers and their keys.
#[derive(Clone)]
pub(super) struct Keyring(Arc<Inner>);

struct Inner {
    issuers: RwLock<Issuers>,
    known: Vec<Known>,
}

impl Keyring {
    /// Creates a keyring. `sources` lists the issuers whose keys must be fetched.
    pub(super) fn new(issuers: Issuers, sources: impl IntoIterator<Item = Source>) -> Self {
        let known = sources.into_iter().map(|source| Known {
            source,
            asked: Mutex::default(),
        });
        Self(Arc::new(Inner {
            issuers: RwLock::new(issuers),
            known: known.collect(),
        }))
    }

    /// Verifies an access token. May wait until the keys of the issuer are fetched.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if the token is not valid. [`ErrorKind::Unreachable`] if the
    /// keys to verify it cannot be fetched.
    pub(super) async fn verify(&self, token: &str) -> Result<Verified> {
        let verify = |issuers: &Issuers, now| issuers.verify(token.as_bytes(), now);
        self.verify_by(verify).await
    }

    /// Verifies the ID token of a login. May wait until the keys of the provider are fetched.
    ///
    /// # Errors
    /// The errors of [`Keyring::verify`].
    pub(super) async fn verify_login(
        &self,
        token: &str,
        expected: &ExpectedLogin<'_>,
    ) -> Result<LoggedIn> {
        let verify =
            |issuers: &Issuers, now| issuers.verify_id_token(token.as_bytes(), expected, now);
        self.verify_by(verify).await
    }

    async fn verify_by<T: Signed>(
        &self,
        verify: impl Fn(&Issuers, u64) -> Result<T, Refusal>,
    ) -> Result<T> {
        let issuer = match self.judge(&verify, now()) {
            Ok((verified, Need::No)) => return Ok(verified),
            Ok((verified, Need::Soon)) => {
                drop(self.ask(verified.issuer()));
                return Ok(verified);
            }
            Ok((verified, Need::First)) => verified.issuer().to_owned(),
            Err(Refusal::UnknownKey { issuer, .. }) => issuer,
            Err(Refusal::Refused(error)) => return Err(error),
        };
        if let Some(mut answered) = self.ask(&issuer) {
            // The channel never has a value. It closes when the request ends.
            let _ended = answered.changed().await;
        }
        // Verify again even if no request was sent: another call may have fetched the keys since
        // the first try.
        match self.judge(&verify, now()) {
            Ok((verified, _)) => Ok(verified),
            Err(refusal) => Err(refusal.into()),
        }
    }

    fn known(&self, issuer: &str) -> Option<&Known> {
        let mut known = self.0.known.iter();
        known.find(|known| known.source.issuer == issuer)
    }

    fn judge<T: Signed>(
        &self,
        verify: &impl Fn(&Issuers, u64) -> Result<T, Refusal>,
        now: u64,
    ) -> Result<(T, Need), Refusal> {
        let issuers = self.0.issuers.read();
        let issuers = issuers.unwrap_or_else(PoisonError::into_inner);
        let verified = match verify(&issuers, now) {
            Err(Refusal::UnknownKey { issuer, .. }) if issuers.keys(&issuer).is_none() => {
                let error = no_keys(&format!("fetching the keys of {issuer} failed"));
                return Err(Refusal::UnknownKey { issuer, error });
            }
            Err(Refusal::UnknownKey { issuer, error })
                if (self.known(&issuer)).is_some_and(|known| known.asked().has_failed) =>
            {
                let cause = format!(
                    "{}, and new keys could not be fetched from the issuer",
                    error.cause
                );
                let error = error.cause(cause).status(Status::Temporary);
                return Err(Refusal::UnknownKey { issuer, error });
            }
            judged => judged?,
        };
        let (Some(known), Some(keys)) = (
            self.known(verified.issuer()),
            issuers.keys(verified.issuer()),
        ) else {
            return Ok((verified, Need::No));
        };
        let age = now.saturating_sub(keys.fetched_at());
        let (cache, stale) = (known.source.cache_seconds, known.source.stale_seconds);
        let need = if age < cache - cache / 4 {
            Need::No
        } else if age < cache {
            Need::Soon
        } else if age >= cache.saturating_add(stale) {
            let issuer = verified.issuer().to_owned();
            let error = no_keys(&format!(
                "the stored keys of {issuer} are too old, and new keys could not be fetched"
            ));
            return Err(Refusal::UnknownKey { issuer, error });
        } else if known.asked().has_failed {
            // A recent request has failed, so do not let another call wait for the issuer.
            Need::Soon
        } else {
            Need::First
        };
        Ok((verified, need))
    }

    /// Starts a request for an issuer's keys, unless the last request was too recent. The returned
    /// channel closes when the request ends.
    fn ask(&self, issuer: &str) -> Option<watch::Receiver<()>> {
        let known = self.known(issuer)?;
        let mut asked = known.asked();
        if let Some(running) = &asked.running
            && running.has_changed().is_ok()
        {
            return Some(running.clone());
        }
        if asked.next.is_some_and(|next| next > Instant::now()) {
            return None;
        }
        let (answers, running) = watch::channel(());
        asked.running = Some(running.clone());
        // Set the earliest time of the next request, in case the task below panics. If the task
        // does not panic, `fetch` replaces this time.
        asked.next = Some(Instant::now() + known.source.pace.failed);
        // Fetch the keys in a separate task. Other callers may wait for the same keys, so the
        // request must continue if this caller disconnects.
        let (keyring, issuer) = (self.clone(), issuer.to_owned());
        tokio::spawn(async move {
            keyring.fetch(&issuer).await;
            drop(answers);
        });
        Some(running)
    }

    async fn fetch(&self, issuer: &str) {
        let Some(known) = self.known(issuer) else {
            return;
        };
        let source = &known.source;
        let fetched = tokio::time::timeout(source.pace.fetch, source.keys.fetch(now())).await;
        let fetched = fetched.unwrap_or_else(|_| {
            let operation = format!("get the keys of {issuer}");
            Err(
                Error::new(ErrorKind::TimedOut, End::Network, operation).cause(format!(
                    "the issuer sent no answer within {} s",
                    source.pace.fetch.as_secs()
                )),
            )
        });
        let has_failed = fetched.is_err();
        match fetched {
            Ok(keys) => {
                let issuers = self.0.issuers.write();
                let mut issuers = issuers.unwrap_or_else(PoisonError::into_inner);
                issuers.set_keys(issuer, keys);
            }
            Err(error) => tracing::warn!(issuer, "cannot get the issuer's keys: {error}"),
        }
        let mut asked = known.asked();
        asked.has_failed = has_failed;
        let pause = match has_failed {
            true => source.pace.failed,
            false => source.pace.asked,
        };
        asked.next = Some(Instant::now() + pause);
        asked.running = None;
    }
}

/// Returns the error for a token that cannot be verified, because its issuer has no usable keys.
fn no_keys(cause: &str) -> Error {
    Error::new(ErrorKind::Unreachable, End::Here, "verify the token")
        .cause(cause)
        .remedy("try again later, or tell the endpoint's administrator")
}

#[cfg(test)]
mod tests;
