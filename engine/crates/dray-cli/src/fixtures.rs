//! Answers of an endpoint, for unit tests.

use dray_api::{Transfer, read_answer};
use dray_client::Answer;
use serde_json::{Value, json};

/// Returns a transfer in the form of an endpoint's answer. `fields` replace the default fields.
pub(crate) fn answer(fields: &Value) -> Answer<Transfer> {
    let mut json = json!({"id": "t", "attempt": 1, "tries": 1, "state": "active",
        "version": 1, "attached": false, "owner": "alice",
        "request": {"sources": [{"url": "dray://b.example:4735/data/x"}],
            "destination": {"url": "/data/x"}},
        "submitted_at": "2030-01-01T00:00:00Z", "started_at": null, "ended_at": null,
        "next_try_at": null,
        "files": {"listed": 0, "done": 0, "failed": 0, "skipped": 0, "adopted": 0,
            "listing_done": true},
        "bytes": {"listed": 0, "durable": 0, "resumed": 0, "sent": 0},
        "objects": {"sent": 0, "resumed": 0},
        "rate": {"now": null, "mean": null, "granted": null},
        "eta": null, "error": null, "failures": [], "source": 0, "notices": []});
    merge(&mut json, fields);
    let read = read_answer(&json).expect("a transfer");
    Answer { read, json }
}

fn merge(into: &mut Value, fields: &Value) {
    match (into, fields) {
        (Value::Object(into), Value::Object(fields)) => {
            for (name, value) in fields {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value.clone(),
    }
}
