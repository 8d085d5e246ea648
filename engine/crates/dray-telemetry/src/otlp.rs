//! Spans in the JSON form of OTLP (opentelemetry-proto, `trace/v1/trace.proto`, and OTLP,
//! "JSON Protobuf Encoding": identities are hexadecimal, and 64-bit numbers are texts).

use crate::data::{Ended, Kind, Value};
use crate::settings::Settings;
use serde_json::{Value as Json, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of `STATUS_CODE_ERROR`.
const STATUS_ERROR: u8 = 2;

/// Returns the body of a request with these spans.
pub(crate) fn request(settings: &Settings, spans: &[Ended]) -> Json {
    let version = env!("CARGO_PKG_VERSION");
    let mut resource = vec![
        attribute("service.name", &Value::from(settings.service.as_str())),
        attribute("service.version", &Value::from(version)),
    ];
    if !settings.instance.is_empty() {
        let instance = Value::from(settings.instance.as_str());
        resource.push(attribute("service.instance.id", &instance));
    }
    let spans: Vec<Json> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "dray", "version": version}, "spans": spans}],
    }]})
}

/// Returns the number of spans that the collector has rejected, according to its answer.
pub(crate) fn rejected(answer: &[u8]) -> u64 {
    let answer: Json = serde_json::from_slice(answer).unwrap_or_default();
    match answer.pointer("/partialSuccess/rejectedSpans") {
        Some(Json::String(count)) => count.parse().unwrap_or(0),
        Some(count) => count.as_u64().unwrap_or(0),
        None => 0,
    }
}

fn span(span: &Ended) -> Json {
    let kind = match span.kind {
        Kind::Internal => 1,
        Kind::Server => 2,
        Kind::Client => 3,
    };
    let attributes = span.attributes.iter();
    let attributes: Vec<Json> = attributes
        .map(|(key, value)| attribute(key, value))
        .collect();
    let mut json = json!({
        "traceId": span.context.trace_id(),
        "spanId": span.context.span_id(),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(span.began),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": attributes,
        "flags": 1,
    });
    if let Some(span) = span.parent {
        let parent = dray_core::TraceContext { span, ..PARENT };
        json["parentSpanId"] = parent.span_id().into();
    }
    if span.is_failed {
        json["status"] = json!({"code": STATUS_ERROR});
    }
    json
}

/// A context of which only the span matters.
const PARENT: dray_core::TraceContext = dray_core::TraceContext {
    trace: [0; 16],
    span: [0; 8],
    is_sampled: true,
};

fn attribute(key: &str, value: &Value) -> Json {
    let value = match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::Flag(flag) => json!({"boolValue": flag}),
        Value::List(texts) => {
            let texts: Vec<Json> = texts
                .iter()
                .map(|text| json!({"stringValue": text}))
                .collect();
            json!({"arrayValue": {"values": texts}})
        }
    };
    json!({"key": key, "value": value})
}

fn nanoseconds(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().to_string()
}
