//! Tests of the lines that calls write to the audit log.

use super::house;
use serde_json::{Value, json};

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

#[tokio::test]
async fn the_audit_log_contains_the_answer_and_the_paths_of_each_call() {
    let house = house();
    let request = json!({
        "id": "t1",
        "sources": [{"url": "/slow/x"}],
        "destination": {"url": "/fast/x"},
    });
    house
        .call("alice", "POST /v1/transfers", request.clone())
        .await;
    let line = house.audited("POST /v1/transfers").await;
    assert_eq!(line["transfer"], "t1");
    assert_eq!(line["paths"], json!(["/slow/x", "/fast/x"]));
    assert_eq!(line["error"], Value::Null);

    let (code, _) = house
        .call("alice", "DELETE /v1/transfers/t1", Value::Null)
        .await;
    assert_eq!(code, 409, "it lives");
    let line = house.audited("DELETE /v1/transfers/t1").await;
    assert_eq!(line["transfer"], "t1");
    assert_eq!(line["error"]["kind"], "already_exists");
    assert_eq!(line["error"]["status"], "permanent");
    assert_eq!(line["error"]["cause"], "the transfer is queued");

    let mut nameless = request;
    nameless.as_object_mut().expect("an object").remove("id");
    let (_, made) = house
        .call("bob", "POST /v1/transfers/batch", json!({}))
        .await;
    assert!(made["error"].is_object());
    house.call("bob", "POST /v1/transfers", nameless).await;
    let (_, listed) = house.get("bob", "/v1/transfers").await;
    let mut line = house.audited("POST /v1/transfers").await;
    for _ in 0..500 {
        if line["owner"] == "bob" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        line = house.audited("POST /v1/transfers").await;
    }
    assert_eq!(
        line["transfer"], listed["transfers"][0]["id"],
        "the id that it was given"
    );
}

#[tokio::test]
async fn a_refused_read_is_noted_with_its_path_and_no_body_is_quoted() {
    let house = house();
    let call = "POST /v1/storage/rm";
    let body = json!({"path": "/slow/secret"});
    let (code, told) = house.call("carol-reads", call, body).await;
    assert_eq!(code, 403);
    let line = house.audited(call).await;
    assert_eq!(line["paths"], json!(["/slow/secret"]));
    assert_eq!(line["error"], told["error"]);

    let call = "POST /v1/transfers";
    let body = json!({"sources": "drt_secret"});
    let (code, told) = house.call("alice", call, body).await;
    assert_eq!(code, 400);
    assert!(
        told.to_string().contains("drt_secret"),
        "the caller sees his own: {told}"
    );
    let line = house.audited(call).await;
    assert_eq!(line["error"]["kind"], "invalid_request");
    assert!(!line.to_string().contains("drt_secret"), "{line}");

    // A successful read is not logged. A refused read is logged with its path.
    let (code, _) = house
        .get("carol-reads", "/v1/storage/list?path=/slow/hidden")
        .await;
    assert_eq!(code, 403);
    let line = house.audited("GET /v1/storage/list").await;
    assert_eq!(line["paths"], json!(["/slow/hidden"]));
    assert_eq!(line["error"]["kind"], "permission_denied");
}

#[tokio::test]
async fn a_ticket_or_a_token_in_the_place_of_an_id_is_not_noted() {
    let house = house();
    let ticket = dray_access::tickets::Secret::draw().expect("drawn");
    let ticket = ticket.expose();
    // This token is short, so truncation of the path would not hide the token.
    let token = format!("eyJhIjoxfQ.eyJiIjoyfQ.{}", "s".repeat(86));
    for secret in [ticket, token.as_str()] {
        for (method, path) in [
            ("DELETE", "transfers"),
            ("PATCH", "transfers"),
            ("DELETE", "tickets"),
            ("POST", "nothing"),
        ] {
            let call = format!("{method} /v1/{path}/{secret}");
            let (_, told) = house.call("alice", &call, json!({})).await;
            assert!(!told.to_string().contains(&secret[4..]), "{told}");
        }
    }
    let rename = json!({"from": format!("/slow/{ticket}"), "to": "/slow/x"});
    house.call("alice", "POST /v1/storage/rename", rename).await;
    let line = house.audited("POST /v1/storage/rename").await;
    assert_eq!(line["paths"][0], "/slow/drt_(hidden)");
    house.audited("DELETE /v1/transfers/(no id)").await;
    house.audited("DELETE /v1/tickets/(no id)").await;
    // A valid id may begin with the prefix of a ticket.
    let call = "DELETE /v1/transfers/drt_run1";
    let (code, told) = house.call("alice", call, json!({})).await;
    assert!(
        code == 404 && told.to_string().contains("drt_run1"),
        "{told}"
    );
    house.audited(call).await;
    let (mut text, mut tries) = (String::new(), 0);
    while text.matches("\"call\"").count() < 8 && tries < 500 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        text = std::fs::read_to_string(house.place.join("calls.jsonl")).expect("read");
        tries += 1;
    }
    for secret in [ticket, token.as_str()] {
        assert!(!text.contains(&secret[4..]), "{text}");
    }
    // Calls to unknown paths have no principal and are logged at most once per second.
    assert_eq!(text.matches("\"call\"").count(), 8, "{text}");
    assert_eq!(text.matches("turned_away").count(), 1, "{text}");
}
