//! Extractors: convert parts of a request to the arguments of a handler, and refuse invalid parts
//! with a [`Refusal`].

use super::Api;
use super::record::Record;
use super::refusal::{Answer, Refusal};
use super::session::by_session;
use crate::connection::{Busy, PeerCertificates, SlotReference};
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use dray_access::login::SessionKey;
use dray_access::{Credentials, Principal};
use dray_api::{Check, with_valid_name};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum time until a caller has sent the body of its request.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Maximum size in bytes of the body of a caller that is not authenticated. Such a body contains a
/// ticket of at most 256 bytes.
const SMALL_BYTES_MAX: u64 = 4 << 10;

/// Maximum number of characters of a parser's message that an error repeats.
const WORDS_MAX: usize = 500;

/// Number of running requests of each owner.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<String, u32>>);

/// Number of requests above an owner's limit that are reserved for calls that must always be
/// answered. So an owner who waits for many transfers can still cancel one.
const SPARED: u32 = 8;

/// One counted request of an owner. Dropping this value ends the count.
#[derive(Debug)]
pub(super) struct Taken {
    places: Arc<Places>,
    owner: String,
}

impl Places {
    fn take(self: &Arc<Self>, owner: &str, most: u32) -> Answer<Taken> {
        let mut places = self.0.lock_unpoisoned();
        let count = places.entry(owner.to_owned()).or_default();
        if *count >= most {
            let error = Error::new(ErrorKind::Busy, End::Here, "answer")
                .cause(format!(
                    "{count} requests of {owner} are in progress, which is the limit"
                ))
                .remedy("wait until one of the owner's requests has ended");
            return Err(Refusal::own_limit(error));
        }
        *count += 1;
        Ok(Taken {
            places: Arc::clone(self),
            owner: owner.to_owned(),
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let places = &self.places.0;
        let mut places = places.lock_unpoisoned();
        if let Some(count) = places.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                places.remove(&self.owner);
            }
        }
    }
}

/// While a clone of this value exists, the call counts as a running request of its owner.
#[derive(Debug, Clone, Default)]
pub(super) struct Hold(
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "it counts as long as it exists")
    )]
    Arc<Held>,
);

#[derive(Debug, Default)]
struct Held {
    _taken: Option<Taken>,
    /// Marks the connection as busy while the call runs.
    _busy: Option<Busy>,
}

#[cfg(test)]
impl Hold {
    /// Returns the number of clones that exist.
    pub(super) fn count(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

/// The [`Hold`] of a call, set when its caller is authenticated. It is among the extensions of the
/// request.
#[derive(Debug, Clone, Default)]
pub(super) struct CallHold(Arc<Mutex<Option<Hold>>>);

/// The authenticated caller of a request.
#[derive(Debug)]
pub(super) struct Caller {
    principal: Principal,
    record: Option<Record>,
    /// The session that the caller shows instead of a token.
    session: Option<SessionKey>,
    _hold: Hold,
}

impl CallHold {
    /// Takes out the value that must be kept until the answer is sent.
    pub(super) fn take(&self) -> Option<Hold> {
        self.0.lock_unpoisoned().take()
    }

    fn put(&self, hold: Hold) {
        *self.0.lock_unpoisoned() = Some(hold);
    }
}

impl Caller {
    /// Records the id of the transfer that the call is about.
    pub(super) fn concerns(&self, transfer: &str) {
        if let Some(record) = &self.record {
            record.concerns(transfer);
        }
    }

    /// Returns true if the caller had a session, and the session has ended.
    pub(super) fn has_left(&self, api: &Api) -> bool {
        self.session.is_some_and(|key| !api.logins.is_live(&key))
    }

    /// Makes the caller one whose session has ended.
    #[cfg(test)]
    pub(super) fn leave(&mut self) {
        self.session = Some(SessionKey::of("an ended session"));
    }
}

impl Deref for Caller {
    type Target = Principal;
    fn deref(&self) -> &Principal {
        &self.principal
    }
}

fn bearer(headers: &HeaderMap) -> Answer<Option<&str>> {
    let unauthorized = |cause: &str| {
        Refusal::from(
            Error::new(
                ErrorKind::Unauthorized,
                End::Here,
                "read the caller's token",
            )
            .cause(cause)
            .remedy("send one header `Authorization: Bearer TOKEN`"),
        )
    };
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    let Some(value) = first else { return Ok(None) };
    if second.is_some() {
        return Err(unauthorized("the request has two Authorization headers"));
    }
    let text = value.to_str().map_err(|_| {
        unauthorized(
            "the Authorization header has characters that are not visible \
            ASCII characters",
        )
    })?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unauthorized(
            "the Authorization header does not hold a bearer token",
        )),
    }
}

/// Returns true if a browser sent this request for a page of another site. GET and HEAD requests do
/// not count. Requests that count are refused, because a browser presents its user's certificate
/// for any page. Only browsers send `Origin` (Fetch) and `Sec-Fetch-Site` (Fetch Metadata Request
/// Headers).
fn is_of_a_page(parts: &Parts) -> bool {
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let site = parts.headers.get("sec-fetch-site");
    let is_own = site.is_none_or(|site| site == "same-origin" || site == "none");
    !is_read && (!is_own || parts.headers.contains_key(header::ORIGIN))
}

pub(super) fn certificates(parts: &Parts) -> PeerCertificates {
    parts.extensions.get().cloned().unwrap_or_default()
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answer<Self> {
        let certificates = certificates(parts);
        let credentials = Credentials {
            bearer: bearer(&parts.headers)?,
            certificates: &certificates.0,
        };
        let user = match credentials.bearer {
            Some(_) => None,
            None => by_session(parts, &api.logins)?,
        };
        if credentials.bearer.is_none() && user.is_none() && is_of_a_page(parts) {
            let error = Error::new(ErrorKind::Unauthorized, End::Here, "identify the caller");
            return Err(error
                .cause("a web page of another site sent the request with the browser's certificate")
                .remedy("send a token")
                .into());
        }
        let (principal, session) = match user {
            Some((user, session)) => (user.principal, Some(session)),
            None => (api.access.authenticate(credentials).await?, None),
        };
        let record = parts.extensions.get::<Record>().cloned();
        if let Some(record) = &record {
            record.by(&principal);
        }
        let mut most = api.config.limits.connections_per_owner;
        let route = parts.extensions.get::<MatchedPath>();
        if route.is_some_and(|route| super::is_spared(&parts.method, route.as_str())) {
            most = most.saturating_add(SPARED);
        }
        let taken = api.places.take(&principal.owner, most)?;
        let hold = Hold(Arc::new(Held {
            _taken: Some(taken),
            _busy: parts
                .extensions
                .get::<SlotReference>()
                .map(SlotReference::begin_request),
        }));
        if let Some(place) = parts.extensions.get::<CallHold>() {
            place.put(hold.clone());
        }
        Ok(Self {
            principal,
            record,
            session,
            _hold: hold,
        })
    }
}

/// The certificates of a caller without a token. A call without a certificate is refused before its
/// body is read.
#[derive(Debug)]
pub(super) struct Certificates(pub(super) PeerCertificates);

impl FromRequestParts<Arc<Api>> for Certificates {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Answer<Self> {
        let shown = certificates(parts);
        if shown.0.is_empty() {
            return Err(
                Error::new(ErrorKind::Unauthorized, End::Here, "identify the caller")
                    .cause(
                        "the caller presents no certificate, but a ticket is bound to the key of \
                            a certificate",
                    )
                    .remedy(
                        "send the request with the client certificate whose key the ticket \
                        is bound to",
                    )
                    .into(),
            );
        }
        Ok(Self(shown))
    }
}

/// The parameter `{id}` of a path.
#[derive(Debug)]
pub(super) struct Id(pub(super) String);

impl FromRequestParts<Arc<Api>> for Id {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answer<Self> {
        let params = RawPathParams::from_request_parts(parts, api)
            .await
            .map_err(|error| bad("read the id", error))?;
        let id = params.iter().find(|(name, _)| *name == "id");
        let id = id.map_or_else(String::new, |(_, id)| id.to_owned());
        // On these paths, the id is that of a ticket, a tape request or a peer, and not of a
        // transfer.
        let path = parts.uri.path();
        let others = ["/v1/tickets/", "/v1/tape/", "/v1/peers/"];
        let is_other = others.iter().any(|other| path.starts_with(other));
        if let Some(record) = parts.extensions.get::<Record>() {
            record.with_id(&id);
            if !is_other {
                record.concerns(&id);
            }
        }
        Ok(Self(id))
    }
}

fn bad(operation: &str, cause: impl std::fmt::Display) -> Refusal {
    let cause: String = cause.to_string().chars().take(WORDS_MAX).collect();
    let error = Error::new(ErrorKind::InvalidRequest, End::Here, operation)
        .cause(cause)
        .remedy("see GET /v1/openapi.json for the allowed values of each field");
    Refusal::from(error).quoting()
}

/// The query of a URL, parsed and checked.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + Check> FromRequestParts<Arc<Api>> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Answer<Self> {
        let text = parts.uri.query().unwrap_or_default();
        let read: T = serde_html_form::from_str(text)
            .map_err(|error| bad("read the query of the URL", in_field::<T>(text, &error)))?;
        read.check()?;
        if let Some(record) = parts.extensions.get::<Record>() {
            record.about(&read);
        }
        Ok(Self(read))
    }
}

/// Returns the message about an invalid query, with the name of the invalid field.
fn in_field<T: DeserializeOwned>(query: &str, error: &serde_html_form::de::Error) -> String {
    let words = error.to_string();
    let fails_alike = |pair: &&str| {
        let alone = serde_html_form::from_str::<T>(pair);
        alone.is_err_and(|other| other.to_string() == words)
    };
    let pair = query.split('&').find(fails_alike);
    match pair.and_then(|pair| pair.split('=').next()) {
        Some(field) if !field.is_empty() && !words.contains(field) => format!("{field}: {words}"),
        _ => words,
    }
}

/// A JSON body, parsed and checked.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned + Check> FromRequest<Arc<Api>> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, api: &Arc<Api>) -> Answer<Self> {
        let record = request.extensions().get::<Record>().cloned();
        let bytes = bytes(request, api.config.limits.body_bytes.0).await?;
        let body: T = read(&bytes)?;
        if let Some(record) = record {
            record.about(&body);
        }
        Ok(Self(body))
    }
}

/// A small JSON body from a caller that is not authenticated.
#[derive(Debug)]
pub(super) struct SmallBody<T>(pub(super) T);

impl<T: DeserializeOwned + Check> FromRequest<Arc<Api>> for SmallBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &Arc<Api>) -> Answer<Self> {
        read(&bytes(request, SMALL_BYTES_MAX).await?).map(Self)
    }
}

/// A JSON body that may be empty.
#[derive(Debug)]
pub(super) struct OptionalBody<T>(pub(super) T);

impl<T: DeserializeOwned + Check + Default> FromRequest<Arc<Api>> for OptionalBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, api: &Arc<Api>) -> Answer<Self> {
        let bytes = bytes(request, api.config.limits.body_bytes.0).await?;
        match bytes.is_empty() {
            true => Ok(Self(T::default())),
            false => read(&bytes).map(Self),
        }
    }
}

fn read<T: DeserializeOwned + Check>(bytes: &[u8]) -> Answer<T> {
    let read: T = serde_json::from_slice(bytes).map_err(|error| {
        let cause = with_valid_name(&error.to_string());
        bad("read the request's body", cause)
    })?;
    read.check()?;
    Ok(read)
}

async fn bytes(request: Request, most: u64) -> Answer<Bytes> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_json = kind.is_none_or(|kind| {
        let kind = kind.as_bytes();
        kind.len() >= 16 && kind[..16].eq_ignore_ascii_case(b"application/json")
    });
    if !is_json {
        let cause = "the body is not declared as JSON (Content-Type: application/json)";
        return Err(bad("read the request's body", cause));
    }
    collect(request.into_body(), most).await
}

async fn collect(body: HttpBody, most: u64) -> Answer<Bytes> {
    let operation = "read the request's body";
    let limited = Limited::new(body, usize::try_from(most).unwrap_or(usize::MAX));
    let collected = tokio::time::timeout(BODY_TIME, limited.collect()).await;
    let collected = collected.map_err(|_| {
        Error::new(ErrorKind::TimedOut, End::Here, operation).cause(format!(
            "the request's body did not arrive within {} seconds",
            BODY_TIME.as_secs()
        ))
    })?;
    match collected {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Error::new(ErrorKind::LimitExceeded, End::Here, operation)
                .cause(format!(
                    "the body of the request has more than {most} bytes"
                ))
                .remedy("split the request into smaller requests")
                .into())
        }
        Err(error) => Err(bad(operation, error)),
    }
}
