//! Spans of calls, and the header `traceparent`.

use super::Api;
use super::refusal::Answer;
use axum::http::{HeaderMap, StatusCode};
use dray_core::TraceContext;
use dray_telemetry::{Kind, Span};

/// Header with the span of the caller (W3C Trace Context, section 3.2).
const HEADER: &str = "traceparent";

/// Returns the span of the caller. An invalid header is ignored, and so are two headers.
pub(super) fn caller(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all(HEADER).iter();
    let (first, second) = (values.next()?, values.next());
    let text = first.to_str().ok().filter(|_| second.is_none())?;
    TraceContext::parse(text.trim())
}

/// Begins the span of a call. `name` is the method and the route (OpenTelemetry, "Semantic
/// conventions for HTTP spans").
pub(super) fn begin(api: &Api, name: &'static str, parent: Option<TraceContext>) -> Span {
    let mut span = api.telemetry.span(name, Kind::Server, parent);
    let (method, route) = name.split_once(' ').unwrap_or_default();
    span.set("http.request.method", method);
    span.set("http.route", route);
    span
}

/// Ends the span of a call with its answer. Only a fault of the endpoint counts as an error.
pub(super) fn end<T>(mut span: Span, answer: &Answer<T>, succeeded: StatusCode) {
    let code = match answer {
        Ok(_) => succeeded,
        Err(refusal) => refusal.about().1,
    };
    span.set("http.response.status_code", u32::from(code.as_u16()));
    if let Err(refusal) = answer
        && code.is_server_error()
    {
        span.fail(refusal.about().0);
    }
    span.end();
}

#[cfg(test)]
mod tests {
    use super::caller;
    use axum::http::HeaderMap;
    use axum::http::header::HeaderValue;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_hostile_header_is_ignored() {
        let found = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                let value = HeaderValue::from_bytes(value).expect("a value");
                headers.append("traceparent", value);
            }
            caller(&headers).map(|trace| trace.to_string())
        };
        assert_eq!(found(&[TEXT.as_bytes()]).as_deref(), Some(TEXT));
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[b"\xff\xfe"]), None);
        assert_eq!(found(&[TEXT.as_bytes(), TEXT.as_bytes()]), None);
        assert_eq!(found(&["a".repeat(60_000).as_bytes()]), None);
    }
}
