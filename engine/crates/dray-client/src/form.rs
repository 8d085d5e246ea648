//! Calls to web servers that are not endpoints: a form is sent, and JSON is received. The token
//! endpoint of an OAuth 2.0 server has this interface (RFC 6749, section 4.1.3).

use super::{CallOutcome, Client};
use dray_core::{ErrorKind, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use serde_json::Value;

/// Maximum size of an answer in bytes. It contains a few tokens.
const FORM_ANSWER_BYTES_MAX: usize = 256 << 10;

impl Client {
    /// Sends a form by POST on a new connection. `form` is encoded as
    /// `application/x-www-form-urlencoded`. `authorization` is the value of the header
    /// `Authorization`, if any. Returns the status code and the JSON of the answer.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] or [`ErrorKind::TimedOut`] if the server does not answer.
    /// [`ErrorKind::Unauthorized`] if the server does not prove its identity.
    /// [`ErrorKind::Protocol`] if the answer is not JSON. A status code that reports an error is no
    /// error of this call.
    pub async fn post_form(
        &self,
        path: &str,
        form: String,
        authorization: Option<&str>,
    ) -> Result<(StatusCode, Value)> {
        let mut request = Request::post(path)
            .header(HOST, &self.address)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(Bytes::from(form)))
            .map_err(|error| self.error(ErrorKind::InvalidRequest, error))?;
        let called = async {
            let lost = |error: &dyn std::fmt::Display| {
                CallOutcome::not_sent(self.error(ErrorKind::Unreachable, error))
            };
            let mut sender = self.connect().await.map_err(CallOutcome::not_sent)?;
            let answer = sender.send_request(request).await;
            let answer = answer.map_err(|error| lost(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), FORM_ANSWER_BYTES_MAX).collect();
            let body = body.await.map_err(|error| lost(&error))?;
            Ok((status, body.to_bytes()))
        };
        match self.with_timeout(called).await {
            Ok((status, bytes)) => match serde_json::from_slice(&bytes) {
                Ok(json) => Ok((status, json)),
                Err(_) => Err(self.error(
                    ErrorKind::Protocol,
                    format!("the server answered {status}, and the answer is not JSON"),
                )),
            },
            Err(CallOutcome::Lost { error, .. } | CallOutcome::Answered(Err(error))) => Err(error),
            Err(CallOutcome::Answered(Ok(_))) => {
                Err(self.error(ErrorKind::Internal, "the call ended without an answer"))
            }
        }
    }
}
