//! What calls are written into the audit log: those that change something, and those that are
//! refused for who calls.

use crate::access::Principal;
use crate::audit::{Audit, Deed};
use crate::connection::PeerAddress;
use crate::place::without_secrets;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use dray_core::{End, Error, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

/// Calls with a body that change nothing.
const ASKS: [&str; 4] = [
    "/v1/transfers/query",
    "/v1/admission",
    "/v1/storage/checksum",
    "/v1/tickets/renew",
];

#[derive(Debug, Default)]
struct Slots {
    principal: Option<(String, String)>,
    paths: Vec<String>,
}

/// What becomes known of a call while it is answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Record(Arc<Mutex<Slots>>);

impl Record {
    /// The caller is known.
    pub(super) fn by(&self, principal: &Principal) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.principal = Some((principal.owner.clone(), principal.name.clone()));
    }

    /// What it is about is known.
    pub(super) fn about(&self, paths: Vec<String>) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = paths.iter().map(|path| without_secrets(path).into_owned());
        slots.paths = noted.collect();
    }
}

/// A call before it is answered.
pub(super) struct Call {
    record: Record,
    peer: String,
    method: Method,
    path: String,
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
            // Without the query: it is about what is asked, and may be long.
            path: request.uri().path().chars().take(256).collect(),
        }
    }

    /// Writes it down, if it is one that is.
    pub(super) fn answered(self, audit: &Audit, route: &str, status: StatusCode) {
        let changes = !matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS)
            && !ASKS.contains(&route);
        let kind = match status {
            StatusCode::UNAUTHORIZED => Some(ErrorKind::Unauthorized),
            StatusCode::FORBIDDEN => Some(ErrorKind::PermissionDenied),
            _ => None,
        };
        let refused = kind
            .map(|kind| Error::new(kind, End::Here, "answer the call").cause(status.to_string()));
        let failed = (refused.is_none() && !status.is_success()).then(|| {
            Error::new(ErrorKind::Other, End::Here, "answer the call").cause(status.to_string())
        });
        if !changes && refused.is_none() {
            return;
        }
        let slots = self.record.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (owner, principal) = slots.principal.clone().unwrap_or_default();
        if let (true, Some(error)) = (principal.is_empty(), &refused) {
            // A stranger: as often as he likes, so not each time.
            audit.stranger(&self.peer, error);
            return;
        }
        let deed = Deed {
            owner,
            principal,
            peer: self.peer,
            what: format!("{} {}", self.method, self.path),
            transfer: None,
            paths: slots.paths.clone(),
        };
        drop(slots);
        audit.call(&deed, refused.or(failed).as_ref());
    }
}
