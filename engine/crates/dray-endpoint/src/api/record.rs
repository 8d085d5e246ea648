//! Collects facts about a call for the audit log. The log contains the calls that change something,
//! and the calls that were refused because of their caller (status 401 and 403).

use crate::audit::{Audit, Deed};
use crate::connection::PeerAddress;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use dray_access::Principal;
use dray_api::Check;
use dray_api::api_path::without_secrets;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind};
use std::sync::{Arc, Mutex};

/// Calls that have a body but only read data. The audit log does not contain these calls.
const ASKS: [&str; 7] = [
    "/v1/transfers/query",
    "/v1/admission",
    "/v1/storage/checksum",
    "/v1/tickets/renew",
    "/v1/tape/archiveinfo",
    "/v1/peers/{id}/endpoint",
    "/v1/peers/{id}/list",
];

/// The route at which a browser returns from a login. A login begins a session, so the audit log
/// contains it although the call has the method GET.
pub(super) const LOGIN_DONE: &str = "/ui/login/{id}/done";

#[derive(Debug, Default)]
struct Slots {
    principal: Option<(String, String)>,
    transfer: Option<String>,
    id: Option<String>,
    paths: Vec<String>,
}

/// Facts about a call. The extractors and handlers of the call add these facts while they answer
/// the call.
#[derive(Debug, Clone, Default)]
pub(super) struct Record(Arc<Mutex<Slots>>);

impl Record {
    /// Records the caller's principal and owner.
    pub(super) fn by(&self, principal: &Principal) {
        let mut slots = self.0.lock_unpoisoned();
        slots.principal = Some((principal.owner.clone(), principal.name.clone()));
    }

    /// Records a principal that has no owner, because the endpoint refuses the principal.
    pub(super) fn by_name(&self, principal: &str) {
        let mut slots = self.0.lock_unpoisoned();
        slots.principal = Some((String::new(), principal.to_owned()));
    }

    /// Records the paths and the transfer of a request.
    pub(super) fn about(&self, what: &impl Check) {
        if let Some(transfer) = what.transfer() {
            self.concerns(transfer);
        }
        let paths = what.about();
        let noted = paths.iter().map(|path| without_secrets(path).into_owned());
        let mut slots = self.0.lock_unpoisoned();
        slots.paths.extend(noted);
    }

    /// Records the id of the transfer that the call is about.
    pub(super) fn concerns(&self, transfer: &str) {
        let mut slots = self.0.lock_unpoisoned();
        slots.transfer = Some(named(transfer).to_owned());
    }

    /// Records the value of `{id}` in the route.
    pub(super) fn with_id(&self, id: &str) {
        let mut slots = self.0.lock_unpoisoned();
        slots.id = Some(named(id).to_owned());
    }
}

/// Returns the id if it has the form of an id. Any other text is not logged, because it may be a
/// token or a ticket in the wrong place.
fn named(id: &str) -> &str {
    dray_api::shown_id(id).unwrap_or("(no id)")
}

/// A call in progress.
pub(super) struct Call {
    record: Record,
    peer: String,
    method: Method,
}

impl Call {
    pub(super) fn of(request: &mut Request) -> Self {
        let record = Record::default();
        request.extensions_mut().insert(record.clone());
        let peer = request.extensions().get::<PeerAddress>();
        Self {
            record,
            peer: peer.map_or_else(String::new, |peer| peer.0.to_string()),
            method: request.method().clone(),
        }
    }

    /// Writes the call to the audit log if the call changes something, or if it was refused with
    /// 401 or 403. `told` is the error that the caller received.
    pub(super) fn answered(
        self,
        audit: &Audit,
        route: &str,
        status: StatusCode,
        told: Option<Error>,
    ) {
        let is_read = matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let changes = (!is_read && !ASKS.contains(&route)) || route == LOGIN_DONE;
        let refused = match status {
            StatusCode::UNAUTHORIZED => Some(ErrorKind::Unauthorized),
            StatusCode::FORBIDDEN => Some(ErrorKind::PermissionDenied),
            _ => None,
        };
        if !changes && refused.is_none() {
            return;
        }
        let by_code = || {
            let kind = refused.unwrap_or(ErrorKind::Other);
            Error::new(kind, End::Here, "answer the call").cause(status.to_string())
        };
        let slots = self.record.0.lock_unpoisoned();
        let (owner, principal) = slots.principal.clone().unwrap_or_default();
        if principal.is_empty() {
            // The caller was not authenticated. The audit log limits the rate of lines about such
            // callers, and the lines contain no text from the caller.
            audit.stranger(&self.peer, &by_code());
            return;
        }
        // The route is logged and never the URL, because a caller may have put a secret into the
        // URL by mistake.
        let path = route.replace("{id}", slots.id.as_deref().unwrap_or("{id}"));
        let has_failed = status.is_client_error() || status.is_server_error();
        let error = has_failed.then(|| told.unwrap_or_else(by_code));
        let deed = Deed {
            owner,
            principal,
            peer: self.peer,
            what: format!("{} {}", self.method, path),
            transfer: slots.transfer.clone(),
            paths: slots.paths.clone(),
        };
        drop(slots);
        audit.call(&deed, error.as_ref());
    }
}
