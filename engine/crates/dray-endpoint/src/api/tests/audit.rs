//! What the audit log says of calls.

use super::house;
use serde_json::json;

#[tokio::test]
async fn a_password_in_a_refused_url_is_not_noted() {
    let house = house();
    let request = json!({
        "sources": [{"url": "dray://user:secretpw@h.example:4811/data/x"}],
        "destination": {"url": "/slow/x"},
    });
    let (code, answer) = house.call("alice", "POST /v1/transfers", request).await;
    assert_eq!(code, 400, "{answer}");
    let line = house.audited("POST /v1/transfers").await;
    assert!(!line.to_string().contains("secretpw"), "{line}");
    assert!(!answer.to_string().contains("secretpw"), "{answer}");
    let paths = json!(["dray://h.example:4811/data/x", "/slow/x"]);
    assert_eq!(line["paths"], paths, "what is left is");
}
