//! Calls to the endpoints that the configuration names, on behalf of callers.
//!
//! Invariant owned here: a caller's token for another endpoint goes only to the configured address,
//! after that endpoint has proved its identity. The token is in memory only, for one call.

use dray_api::{PeerAnswer, PeerToken, read_answer};
use dray_client::{Client, Keeper};
use dray_config::Config;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_net::{Authority, Trust};
use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// Maximum number of concurrent calls.
const CALLS_MAX: usize = 8;

/// Maximum number of concurrent calls of one owner, so that one owner cannot take all places.
const OWNER_CALLS_MAX: usize = CALLS_MAX / 2;

/// Maximum size of an answer in bytes. A page of 1000 names of 255 bytes has less than 1 MiB. All
/// calls together use at most a few hundred MiB for parsed answers, even if a peer sends answers
/// that take much memory.
const ANSWER_BYTES_MAX: usize = 2 << 20;

/// Maximum time of one call, with the time to connect.
const CALL_TIME: Duration = Duration::from_secs(30);

struct Peer {
    about: PeerAnswer,
    /// `None` if the endpoint cannot check the identity of the peer.
    trust: Option<Trust>,
}

/// The endpoints in the configuration.
pub struct Peers {
    known: Vec<Peer>,
    places: Places,
}

/// The places for concurrent calls.
#[derive(Default)]
struct Places(Mutex<HashMap<String, usize>>);

/// A place for one call. Dropping this value frees the place.
struct Taken<'p> {
    places: &'p Places,
    owner: String,
}

impl Places {
    /// Takes a place for a call of `owner`.
    ///
    /// # Errors
    /// The cause, if no place is free, or if the owner has half of the places.
    fn take(&self, owner: &str) -> std::result::Result<Taken<'_>, String> {
        let mut running = self.0.lock_unpoisoned();
        let own = running.get(owner).copied().unwrap_or(0);
        if own >= OWNER_CALLS_MAX {
            return Err(format!(
                "{own} of your calls to peers are in progress, which is the limit"
            ));
        }
        if running.values().sum::<usize>() >= CALLS_MAX {
            return Err(format!(
                "{CALLS_MAX} calls to peers are in progress, which is the limit"
            ));
        }
        running.insert(owner.to_owned(), own + 1);
        Ok(Taken {
            places: self,
            owner: owner.to_owned(),
        })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut running = self.places.0.lock_unpoisoned();
        match running.get_mut(&self.owner) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(running.remove(&self.owner)),
        }
    }
}

/// A call to another endpoint.
pub(crate) struct PeerCall<'a> {
    /// Owner of the caller at this endpoint.
    pub(crate) owner: &'a str,
    /// Name of the endpoint in the configuration.
    pub(crate) peer: &'a str,
    /// The caller's token for that endpoint.
    pub(crate) token: &'a PeerToken,
    /// Method of the call.
    pub(crate) method: Method,
    /// Path of the call, with its query.
    pub(crate) path: &'a str,
    /// Body of the call.
    pub(crate) body: Option<&'a Value>,
}

impl Peers {
    /// Returns the endpoints of a configuration. `authority` checks those without a pinned key.
    #[must_use]
    pub fn of(config: &Config, authority: Option<&Authority>) -> Self {
        let known = config.peer.iter().map(|peer| Peer {
            about: PeerAnswer {
                name: peer.name.as_str().to_owned(),
                address: peer.address.as_str().to_owned(),
            },
            trust: match peer.key {
                Some(key) => Some(Trust::Key(key)),
                None => authority.cloned().map(Trust::Authority),
            },
        });
        Self {
            known: known.collect(),
            places: Places::default(),
        }
    }

    /// Returns the names and addresses of the endpoints.
    #[must_use]
    pub fn list(&self) -> Vec<PeerAnswer> {
        self.known.iter().map(|peer| peer.about.clone()).collect()
    }

    /// Makes a call, and parses the answer.
    ///
    /// # Errors
    /// `NotFound` if the configuration does not name the endpoint. `Busy` if too many calls are in
    /// progress. `PermissionDenied` if the other endpoint does not accept the token, or does not
    /// prove its identity. `Unreachable` or `TimedOut` if the other endpoint does not answer.
    /// Otherwise the error of the other endpoint.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: PeerCall<'_>) -> Result<T> {
        let operation = format!("call the endpoint {}", call.peer);
        let failed = |kind| Error::new(kind, End::Here, operation.clone());
        let known = self
            .known
            .iter()
            .find(|known| known.about.name == call.peer);
        let Some(Peer { about, trust }) = known else {
            return Err(failed(ErrorKind::NotFound)
                .cause("the configuration of this endpoint has no peer with this name")
                .remedy("GET /v1/peers lists the peers"));
        };
        let Some(trust) = trust.clone() else {
            return Err(failed(ErrorKind::PermissionDenied)
                .cause("this endpoint cannot check the identity of the peer")
                .remedy("ask the administrator to set `key` of the peer in the configuration"));
        };
        let _place = self.places.take(call.owner).map_err(|cause| {
            failed(ErrorKind::Busy)
                .cause(cause)
                .remedy("try again later")
        })?;
        let client = Client {
            address: about.address.clone(),
            trust,
            identity: None,
            token: Some(call.token.0.clone()),
            answer_bytes_max: ANSWER_BYTES_MAX,
            trace: None,
            kept: Keeper::default(),
        };
        let called = client.call(call.method, call.path, call.body);
        let answer = match tokio::time::timeout(CALL_TIME, called).await {
            Ok(answer) => answer.map_err(|error| for_caller(error, &about.name))?,
            Err(_) => {
                let seconds = CALL_TIME.as_secs();
                return Err(failed(ErrorKind::TimedOut)
                    .cause(format!("the peer did not answer within {seconds} seconds"))
                    .remedy("check the peer and the network, then repeat the call"));
            }
        };
        read_answer(&answer).map_err(|error| {
            failed(ErrorKind::Protocol)
                .cause(format!("the answer of the peer is not valid: {error}"))
                .remedy("use the same version of dray at both endpoints, and report this error")
        })
    }
}

/// Changes a refusal of the token. The caller would take `Unauthorized` for a refusal of its token
/// for this endpoint.
fn for_caller(error: Error, peer: &str) -> Error {
    if error.kind != ErrorKind::Unauthorized {
        return error;
    }
    let operation = format!("call the endpoint {peer}");
    Error::new(ErrorKind::PermissionDenied, End::Here, operation)
        .cause(error.cause)
        .remedy(format!(
            "send a token that the endpoint {peer} accepts; if its key has changed, ask the \
                administrator to correct `key` of the peer in the configuration"
        ))
}

#[cfg(test)]
mod tests {
    use super::{CALLS_MAX, OWNER_CALLS_MAX, Places};

    #[test]
    fn one_owner_never_has_more_than_half_of_the_places() {
        let places = Places::default();
        let take = |owner: &str| places.take(owner);
        let mut held: Vec<_> = (0..OWNER_CALLS_MAX)
            .map(|_| take("a").expect("free"))
            .collect();
        let refused = |owner: &str| take(owner).err().expect("full");
        assert!(refused("a").contains("of your calls"));
        held.extend((0..CALLS_MAX - OWNER_CALLS_MAX).map(|_| take("b").expect("free")));
        assert!(refused("c").contains("8 calls to peers"));
        held.pop();
        held.push(take("c").expect("the place of b"));
        drop(held);
        assert!(places.0.lock().expect("whole").is_empty());
        assert!(take("a").is_ok());
    }
}
