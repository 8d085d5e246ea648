//! The issuers of tokens and the keys of theirs that are at hand: what is fetched when, and who
//! waits for it.
//!
//! A token of a known key is judged at once. One that needs newer keys waits for them: each issuer
//! is asked by one task at a time, whoever needs the answer waits for that one, and how often it is
//! asked does not depend on what strangers show.
//!
//! Invariant owned here: a good token is not refused because somebody else's made us ask.

use super::Future;
use super::now;
use dray_auth::jwk::KeySet;
use dray_auth::{Issuers, Refusal, Verified};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result, Status};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Where an issuer's keys come from.
pub(super) trait Fetch: Send + Sync {
    /// Gets the keys. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// When they cannot be had, or are none.
    fn fetch(&self, now: u64) -> Future<'_, Result<KeySet>>;
}

/// How long and how often an issuer is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// One try; who needs the keys waits for no longer.
    pub(super) fetch: Duration,
    /// From an answer to the next question.
    pub(super) asked: Duration,
    /// The same after a failure.
    pub(super) failed: Duration,
}

/// One issuer.
pub(super) struct Source {
    /// Its URL.
    pub(super) issuer: String,
    /// Where its keys come from.
    pub(super) keys: Box<dyn Fetch>,
    /// For how long they are believed without asking.
    pub(super) cache_seconds: u64,
    /// For how much longer while the issuer cannot be asked.
    pub(super) stale_seconds: u64,
    /// How it is asked.
    pub(super) pace: Pace,
}

#[derive(Default)]
struct Asked {
    /// While it is being asked: ends with the answer.
    running: Option<watch::Receiver<()>>,
    /// When it may be asked again.
    next: Option<Instant>,
    /// Whether the last try brought nothing.
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

/// Whether the keys that a token was judged by should be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// They are new enough.
    No,
    /// Meanwhile, the token is good.
    Soon,
    /// First, if the issuer can be asked.
    First,
}

/// See the module's head.
#[derive(Clone)]
pub(super) struct Keyring(Arc<Shared>);

struct Shared {
    issuers: RwLock<Issuers>,
    known: Vec<Known>,
}

impl Keyring {
    /// `sources` are those of `issuers` whose keys have to be fetched.
    pub(super) fn new(issuers: Issuers, sources: impl IntoIterator<Item = Source>) -> Self {
        let known = sources.into_iter().map(|source| Known {
            source,
            asked: Mutex::default(),
        });
        Self(Arc::new(Shared {
            issuers: RwLock::new(issuers),
            known: known.collect(),
        }))
    }

    /// Judges a token; may wait for its issuer's keys.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] says what is wrong with it; [`ErrorKind::Unreachable`] when there
    /// are no keys to judge it by.
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
            // Its end is the answer: there is never a value.
            let _ended = answered.changed().await;
        }
        // Also when nobody may be asked: the answer may have come a moment ago.
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
            // It was asked since they are so old, or just before: nobody waits for that again.
            Need::Soon
        } else {
            Need::First
        };
        Ok((verified, need))
    }

    /// Has an issuer asked for its keys, unless that was done a moment ago; what is returned ends
    /// when it has answered.
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
        // Holds also when the task dies.
        asked.next = Some(Instant::now() + known.source.pace.failed);
        // A caller that goes away must not take the answer from those who wait for it too.
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

/// Nobody can say whether the token is good.
fn no_keys(cause: &str) -> Error {
    Error::new(ErrorKind::Unreachable, End::Here, "judge the token")
        .cause(cause)
        .remedy("try again later, or tell the endpoint's administrator")
}

#[cfg(test)]
mod tests;
