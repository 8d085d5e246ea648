//! The issuers of tokens and their fetched keys: when keys are fetched, and which calls wait for
//! them.
//!
//! A token of a known key is judged immediately. A token that needs newer keys waits for them. One
//! task at a time asks an issuer, and every call that needs the answer waits for that task. The
//! rate of these requests does not depend on the tokens that strangers present.
//!
//! Invariant owned here: a good token is not refused because of requests that other tokens caused.

use super::Future;
use super::now;
use dray_auth::jwk::KeySet;
use dray_auth::{Issuers, Refusal, Verified};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result, Status};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The place from which an issuer's keys are fetched.
pub(super) trait Fetch: Send + Sync {
    /// Fetches the keys. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// If the keys cannot be fetched or parsed.
    fn fetch(&self, now: u64) -> Future<'_, Result<KeySet>>;
}

/// The time limit and the intervals of requests to an issuer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Maximum time of one request. No call waits longer for the keys.
    pub(super) fetch: Duration,
    /// Interval between an answer and the next request.
    pub(super) asked: Duration,
    /// Interval between a failed request and the next one.
    pub(super) failed: Duration,
}

/// One issuer.
pub(super) struct Source {
    /// Its URL.
    pub(super) issuer: String,
    /// The place from which its keys are fetched.
    pub(super) keys: Box<dyn Fetch>,
    /// Maximum age of keys, in seconds, that are used without a new request.
    pub(super) cache_seconds: u64,
    /// Additional seconds during which keys are used while the issuer is unreachable.
    pub(super) stale_seconds: u64,
    /// The time limit and the intervals of requests.
    pub(super) pace: Pace,
}

#[derive(Default)]
struct Asked {
    /// Set while a request runs; the channel closes with the answer.
    running: Option<watch::Receiver<()>>,
    /// Earliest time of the next request.
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

/// Urgency of a fetch of newer keys, after a token was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The keys are new enough.
    No,
    /// The token is accepted; newer keys are fetched in the background.
    Soon,
    /// The keys are fetched before the token is judged, if the issuer can be reached.
    First,
}

/// See the module documentation.
#[derive(Clone)]
pub(super) struct Keyring(Arc<Inner>);

struct Inner {
    issuers: RwLock<Issuers>,
    known: Vec<Known>,
}

impl Keyring {
    /// Creates a keyring. `sources` holds the issuers of `issuers` whose keys are fetched.
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

    /// Judges a token. May wait for its issuer's keys.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if the token is wrong; [`ErrorKind::Unreachable`] if there are
    /// no keys to judge it by.
    pub(super) async fn verify(&self, token: &str) -> Result<Verified> {
        let issuer = match self.judge(token, now()) {
            Ok((verified, Need::No)) => return Ok(verified),
            Ok((verified, Need::Soon)) => {
                drop(self.ask(&verified.issuer));
                return Ok(verified);
            }
            Ok((verified, Need::First)) => verified.issuer,
            Err(Refusal::UnknownKey { issuer, .. }) => issuer,
            Err(Refusal::Refused(error)) => return Err(error),
        };
        if let Some(mut answered) = self.ask(&issuer) {
            // The channel closes with the answer and never carries a value.
            let _ended = answered.changed().await;
        }
        // Judged again even without a request: keys may have arrived since the first try.
        match self.judge(token, now()) {
            Ok((verified, _)) => Ok(verified),
            Err(refusal) => Err(refusal.into()),
        }
    }

    fn known(&self, issuer: &str) -> Option<&Known> {
        let mut known = self.0.known.iter();
        known.find(|known| known.source.issuer == issuer)
    }

    fn judge(&self, token: &str, now: u64) -> Result<(Verified, Need), Refusal> {
        let issuers = self.0.issuers.read();
        let issuers = issuers.unwrap_or_else(PoisonError::into_inner);
        let verified = match issuers.verify(token.as_bytes(), now) {
            Err(Refusal::UnknownKey { issuer, .. }) if issuers.keys(&issuer).is_none() => {
                let error = no_keys(&format!("fetching the keys of {issuer} failed"));
                return Err(Refusal::UnknownKey { issuer, error });
            }
            Err(Refusal::UnknownKey { issuer, error })
                if (self.known(&issuer)).is_some_and(|known| known.asked().has_failed) =>
            {
                let cause = format!("{}, and fetching new keys failed", error.cause);
                let error = error.cause(cause).status(Status::Temporary);
                return Err(Refusal::UnknownKey { issuer, error });
            }
            judged => judged?,
        };
        let (Some(known), Some(keys)) =
            (self.known(&verified.issuer), issuers.keys(&verified.issuer))
        else {
            return Ok((verified, Need::No));
        };
        let age = now.saturating_sub(keys.fetched_at());
        let (cache, stale) = (known.source.cache_seconds, known.source.stale_seconds);
        let need = if age < cache - cache / 4 {
            Need::No
        } else if age < cache {
            Need::Soon
        } else if age >= cache.saturating_add(stale) {
            let issuer = verified.issuer;
            let error = no_keys(&format!(
                "the keys of {issuer} are too old, and fetching new keys failed"
            ));
            return Err(Refusal::UnknownKey { issuer, error });
        } else if known.asked().has_failed {
            // A recent request failed: no other call waits for the issuer again.
            Need::Soon
        } else {
            Need::First
        };
        Ok((verified, need))
    }

    /// Starts a request for an issuer's keys, unless the last one is too recent. The returned
    /// channel closes when the issuer has answered.
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
        // Valid even if the task dies: `fetch` sets the final time.
        asked.next = Some(Instant::now() + known.source.pace.failed);
        // The request has a task of its own: other calls wait for it even if this caller
        // disconnects.
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
            Err(Error::new(ErrorKind::TimedOut, End::Network, operation)
                .cause(format!("no answer in {} s", source.pace.fetch.as_secs())))
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

/// The error for a token that cannot be judged because its issuer has no usable keys.
fn no_keys(cause: &str) -> Error {
    Error::new(ErrorKind::Unreachable, End::Here, "judge the token")
        .cause(cause)
        .remedy("try again later, or tell the endpoint's administrator")
}

#[cfg(test)]
mod tests;
