//! The calls of a browser about logins, below `/ui/`. They exist only with the console, and are not
//! a part of the control API.
//!
//! Not for: the exchange with the provider and the sessions (`dray_access::login`).

use super::Api;
use super::record::{LOGIN_DONE, Record};
use super::refusal::{Answer, CallerError, code_of};
use super::session::{Cookie, attempt_cookie, by_session, no_session_cookies, session_cookies};
use crate::connection::PeerAddress;
use crate::console;
use axum::extract::{Path, RawQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use dray_access::login::{Failed, ProviderAnswer};
use dray_core::{End, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Headers of all answers. Each answer is for one browser, which must not store it.
const PRIVATE: [(HeaderName, &str); 3] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

#[derive(Serialize)]
struct LoginAnswer<'a> {
    name: &'a str,
    /// Address at which the login starts.
    address: String,
}

#[derive(Serialize)]
struct UserAnswer {
    name: String,
}

#[derive(Serialize)]
struct SessionAnswer<'a> {
    logins: Vec<LoginAnswer<'a>>,
    user: Option<UserAnswer>,
    /// True if the browser shows a session that has ended.
    has_ended: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StartQuery {
    page: String,
}

/// Returns the routes of logins.
pub(super) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/ui/session", get(session).delete(logout))
        .route("/ui/login/{id}", get(start))
        .route(LOGIN_DONE, get(done))
}

/// Tells the page which logins exist, and whether the browser has a session. Needs no credentials.
/// The call does not count as a use of the session.
async fn session(State(api): State<Arc<Api>>, parts: Parts) -> Response {
    let logins = &api.logins;
    let found = by_session(&parts, logins);
    let cookie = Cookie::Session.find(&parts.headers, logins.origin());
    let user = found.ok().flatten().map(|(user, _)| user.name);
    let answer = SessionAnswer {
        logins: (logins.list())
            .map(|login| LoginAnswer {
                name: login.shown_name(),
                address: format!("{}/ui/login/{}", logins.origin(), login.id),
            })
            .collect(),
        has_ended: user.is_none() && !matches!(cookie, Ok(None)),
        user: user.map(|name| UserAnswer { name }),
    };
    (PRIVATE, Json(answer)).into_response()
}

/// Ends the session of the browser.
async fn logout(State(api): State<Arc<Api>>, parts: Parts) -> Answer<Response> {
    if let Some((user, key)) = by_session(&parts, &api.logins)? {
        if let Some(record) = parts.extensions.get::<Record>() {
            record.by(&user.principal);
        }
        api.logins.end(&key);
    }
    let cookies = set_cookies(no_session_cookies(api.logins.origin()))?;
    Ok((StatusCode::NO_CONTENT, PRIVATE, cookies).into_response())
}

/// Sends the browser to the provider.
async fn start(
    State(api): State<Arc<Api>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    peer: Option<Extension<PeerAddress>>,
) -> Response {
    let query = serde_html_form::from_str(&query.unwrap_or_default());
    let StartQuery { page } = query.unwrap_or_default();
    let started = api
        .logins
        .start(&id, &page, address(peer))
        .await
        .and_then(|started| {
            let cookie = attempt_cookie(api.logins.origin(), &id, &started.cookie);
            redirect(&started.address, [cookie])
        });
    started.unwrap_or_else(|error| failed(error, ""))
}

/// Takes the answer of the provider from the browser, and begins a session.
async fn done(
    State(api): State<Arc<Api>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    record: Option<Extension<Record>>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
) -> Response {
    let (logins, record) = (&api.logins, record.map(|Extension(record)| record));
    let origin = logins.origin();
    let answer = match ProviderAnswer::parse(&query.unwrap_or_default()) {
        Ok(answer) => answer,
        Err(error) => return failed(error, ""),
    };
    let cookie = match Cookie::Attempt.find(&headers, origin) {
        Ok(cookie) => cookie,
        Err(refusal) => return failed(refusal.about().0.clone(), ""),
    };
    match logins.finish(&id, cookie, &answer, address(peer)).await {
        Ok(succeeded) => {
            if let Some(record) = record {
                record.with_id(&id);
                record.by(&succeeded.user.principal);
            }
            let [api, own] = session_cookies(origin, &succeeded.session);
            let cookies = [api, own, attempt_cookie(origin, &id, "")];
            let page = format!("/ui/{}", succeeded.page);
            redirect(&page, cookies).unwrap_or_else(|error| failed(error, ""))
        }
        Err(Failed {
            error,
            page,
            principal,
        }) => {
            if let (Some(record), Some(principal)) = (record, principal) {
                record.with_id(&id);
                record.by_name(&principal);
            }
            failed(error, &page)
        }
    }
}

/// Returns the address of the browser. All connections without an address count as one client.
fn address(peer: Option<Extension<PeerAddress>>) -> IpAddr {
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |Extension(peer)| peer.0.ip())
}

/// Returns the page about a login that failed.
fn failed(error: Error, page: &str) -> Response {
    let code = code_of(error.kind);
    let mut response = console::message("Login failed", &error, page);
    *response.status_mut() = code;
    response.extensions_mut().insert(CallerError(error));
    response
}

fn set_cookies<const N: usize>(
    cookies: [String; N],
) -> Result<AppendHeaders<Vec<(HeaderName, HeaderValue)>>> {
    let values = cookies.into_iter().map(|cookie| {
        let mut value = HeaderValue::try_from(cookie).map_err(|error| not_a_header(&error))?;
        value.set_sensitive(true);
        Ok((header::SET_COOKIE, value))
    });
    values.collect::<Result<_>>().map(AppendHeaders)
}

fn redirect<const N: usize>(address: &str, cookies: [String; N]) -> Result<Response> {
    let location = HeaderValue::try_from(address).map_err(|error| not_a_header(&error))?;
    let location = [(header::LOCATION, location)];
    let cookies = set_cookies(cookies)?;
    Ok((StatusCode::SEE_OTHER, PRIVATE, location, cookies).into_response())
}

fn not_a_header(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, End::Here, "log in")
        .cause(format!(
            "an address contains characters that HTTP forbids: {error}"
        ))
        .remedy("report this error, with the endpoint's log")
}
