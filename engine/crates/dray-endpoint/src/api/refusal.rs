//! Errors as answers: the common form of all errors, and the status code of each kind of error.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dray_api::{Admitted, ErrorAnswer, ErrorParts};
use dray_core::{End, Error, ErrorKind};
use dray_queue::Refused;

/// Number of seconds after which a caller that reached a limit may retry. The value is estimated,
/// not measured.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// A refused call: the error and its status code.
#[derive(Debug, Clone)]
pub struct Refusal {
    error: Error,
    code: StatusCode,
    admission: Option<Box<Admitted>>,
    /// True if the cause quotes the request. The quoted text may contain a secret that the caller
    /// wrote into a wrong field.
    is_quoting: bool,
}

/// The error that a caller received, without texts that the audit log must not contain.
#[derive(Debug, Clone)]
pub(super) struct CallerError(pub(super) Error);

/// The error that the answer contains.
#[derive(Debug, Clone)]
pub(super) struct ShownError(pub(super) ErrorParts);

/// The result of a handler.
pub(super) type Answer<T> = std::result::Result<T, Refusal>;

impl Refusal {
    /// Returns a refusal whose status code is `code` instead of the code of the error's kind.
    #[must_use]
    pub const fn with_code(error: Error, code: StatusCode) -> Self {
        Self {
            error,
            code,
            admission: None,
            is_quoting: false,
        }
    }

    /// Returns the error and the status code.
    pub(super) const fn about(&self) -> (&Error, StatusCode) {
        (&self.error, self.code)
    }

    /// Marks the refusal as quoting the request. The audit log then leaves out the cause.
    pub(super) const fn quoting(mut self) -> Self {
        self.is_quoting = true;
        self
    }

    /// Returns the refusal for a limit of this caller. Other callers are still served, so the code
    /// is 429.
    #[must_use]
    pub const fn own_limit(error: Error) -> Self {
        Self::with_code(error, StatusCode::TOO_MANY_REQUESTS)
    }

    /// Returns the refusal for a task of the server that ended without a result.
    pub(super) fn internal(cause: impl std::fmt::Display) -> Self {
        Error::new(ErrorKind::Internal, End::Here, "answer")
            .cause(cause.to_string())
            .remedy("report this error, with the endpoint's log")
            .into()
    }
}

/// Returns the status code of a kind of error, as docs/reference/api.md lists it.
#[must_use]
pub const fn code_of(kind: ErrorKind) -> StatusCode {
    use ErrorKind as K;
    match kind {
        K::InvalidRequest | K::InvalidName | K::PathEscapes | K::NameTooLong => {
            StatusCode::BAD_REQUEST
        }
        K::Unauthorized => StatusCode::UNAUTHORIZED,
        K::PermissionDenied | K::ReadOnly => StatusCode::FORBIDDEN,
        K::NotFound | K::NothingMatched => StatusCode::NOT_FOUND,
        K::AlreadyExists
        | K::IsADirectory
        | K::NotADirectory
        | K::LeaseHeld
        | K::LeaseLost
        | K::NotAdmitted => StatusCode::CONFLICT,
        K::LimitExceeded => StatusCode::PAYLOAD_TOO_LARGE,
        K::Unsupported => StatusCode::NOT_IMPLEMENTED,
        K::Busy | K::NoPlace | K::Unreachable | K::TimedOut => StatusCode::SERVICE_UNAVAILABLE,
        K::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let code = code_of(error.kind);
        Self::with_code(error, code)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self {
            admission: refused.admission,
            ..Self::from(refused.error)
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = ErrorAnswer {
            error: ErrorParts {
                admission: self.admission,
                ..ErrorParts::from(&self.error)
            },
        };
        let shown = ShownError(body.error.clone());
        let mut response = (self.code, Json(body)).into_response();
        response.extensions_mut().insert(shown);
        let headers = response.headers_mut();
        match self.code {
            StatusCode::UNAUTHORIZED => {
                let scheme = HeaderValue::from_static("Bearer");
                headers.insert(header::WWW_AUTHENTICATE, scheme);
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER);
            }
            _ => {}
        }
        let told = match self.is_quoting {
            true => self.error.cause("the request does not match the schema"),
            false => self.error,
        };
        response.extensions_mut().insert(CallerError(told));
        response
    }
}

/// Answers a request whose path is not in the API.
pub(super) async fn no_such_call() -> Refusal {
    Error::new(ErrorKind::NotFound, End::Here, "find the API method")
        .cause("the API has no such path")
        .remedy("GET /v1/openapi.json lists the paths")
        .into()
}

/// Answers a request whose method is not allowed for its path.
pub(super) async fn no_such_method() -> Refusal {
    let error = Error::new(ErrorKind::InvalidRequest, End::Here, "find the API method")
        .cause("the path does not support this method")
        .remedy("GET /v1/openapi.json lists the methods of each path");
    Refusal::with_code(error, StatusCode::METHOD_NOT_ALLOWED)
}

#[cfg(test)]
mod tests {
    use super::code_of;
    use dray_core::ErrorKind;

    #[test]
    fn the_codes_are_those_of_the_reference() {
        let reference = include_str!("../../../../../docs/reference/api.md");
        let mut named = 0;
        for line in reference.lines().filter(|line| line.starts_with("| ")) {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let (Some(code), Some(kinds)) = (cells.next(), cells.next()) else {
                continue;
            };
            let Ok(code) = code.parse::<u16>() else {
                continue;
            };
            for kind in ErrorKind::ALL {
                let word = serde_json::to_string(kind).expect("a word");
                if !kinds.contains(&format!("`{}`", word.trim_matches('"'))) {
                    continue;
                }
                named += 1;
                // The code is 429 if a caller has reached its own limit, and 503 for every other
                // `busy` error.
                if code != 429 {
                    assert_eq!(code_of(*kind).as_u16(), code, "{kind:?}");
                }
            }
        }
        assert!(named > 18, "{named}");
    }
}
