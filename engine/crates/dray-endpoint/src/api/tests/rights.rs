//! Tests of credentials, and of the rights of callers, owners and administrators.

use super::{house, open_with, request};
use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};
use tower::ServiceExt;

#[tokio::test]
async fn calls_without_a_valid_credential_are_refused() {
    let house = house();
    for headers in [
        vec![],
        vec!["Basic YTpi"],
        vec!["Bearer bad"],
        vec!["Bearer alice", "Bearer bob"],
        vec!["Bearer"],
    ] {
        let mut request = Request::builder().uri("/v1/transfers");
        for value in &headers {
            request = request.header(header::AUTHORIZATION, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        let response = house
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("answered");
        assert_eq!(response.status(), 401, "{headers:?}");
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }
}

#[tokio::test]
async fn a_token_without_the_needed_scope_is_refused() {
    let house = house();
    let (code, error) = house
        .post("alice-reads", "/v1/transfers", request("t"))
        .await;
    assert_eq!(
        (code, &error["error"]["kind"]),
        (403, &json!("permission_denied"))
    );
    for (path, body) in [
        ("/v1/storage/mkdir", json!({"path": "/slow/a"})),
        ("/v1/storage/rm", json!({"path": "/slow/a"})),
        (
            "/v1/storage/rename",
            json!({"from": "/slow/a", "to": "/slow/b"}),
        ),
        ("/v1/staging/in", json!({"path": "/slow/a"})),
    ] {
        assert_eq!(house.post("alice-reads", path, body).await.0, 403, "{path}");
    }
    let (code, read) = house.get("alice-reads", "/v1/endpoint").await;
    assert_eq!(code, 200);
    assert_eq!(
        read["roots"][0],
        json!({"name": "slow", "read": true, "write": false, "stage": false})
    );
    assert_eq!(read["you"]["owner"], "alice");
}

#[tokio::test]
async fn a_retry_needs_the_rights_of_a_submission() {
    let house = house();
    let sent = house.post("alice", "/v1/transfers", request("t")).await;
    assert_eq!(sent.0, 201);
    let retry = "/v1/transfers/t/retry";
    let cancel = house.post("alice", "/v1/transfers/t/cancel", Value::Null);
    assert_eq!(cancel.await.0, 200);
    // The same owner, with a token that has no permission to write.
    let (code, error) = house.post("alice-reads", retry, Value::Null).await;
    assert_eq!(
        (code, &error["error"]["kind"]),
        (403, &json!("permission_denied"))
    );
    let (_, kept) = house.get("alice", "/v1/transfers/t").await;
    assert_eq!(
        (&kept["state"], &kept["attempt"]),
        (&json!("cancelled"), &json!(1))
    );
    let (code, again) = house.post("alice", retry, Value::Null).await;
    assert_eq!((code, &again["attempt"]), (200, &json!(2)));
}

#[tokio::test]
async fn administrators_change_the_policy_and_everybody_sees_it() {
    let house = house();
    let call = "PATCH /v1/endpoint/scheduling";
    let (_, before) = house.get("alice", "/v1/endpoint").await;
    assert_eq!(before["scheduling"]["policy"], "fair");
    let round = json!({"policy": "round_robin", "quota": 5, "max_running": 2});
    assert_eq!(house.call("alice", call, round.clone()).await.0, 403);
    for wrong in [
        json!({"policy": "lifo"}),
        json!({"quota": 0}),
        json!({"max_running": 0}),
        json!({"speed": 3}),
    ] {
        assert_eq!(
            house.call("root", call, wrong.clone()).await.0,
            400,
            "{wrong}"
        );
    }
    let (code, refused) = house.call("root", call, json!({"at_once": 2})).await;
    let cause = refused["error"]["cause"].as_str().unwrap_or_default();
    assert_eq!(code, 400);
    assert!(
        cause.contains("`at_once` is now called `max_running`"),
        "{refused}"
    );
    let (code, now) = house.call("root", call, round).await;
    assert_eq!(
        (code, &now["policy"], &now["max_running"]),
        (200, &json!("round_robin"), &json!(2))
    );
    assert_eq!(
        now["patience_seconds"],
        before["scheduling"]["patience_seconds"]
    );
    let (_, now) = house.call("root", call, json!({"max_running": null})).await;
    assert_eq!(
        (&now["max_running"], &now["quota"]),
        (&json!(null), &json!(5))
    );
    let (_, seen) = house.get("alice", "/v1/endpoint").await;
    assert_eq!(seen["scheduling"], now);
}

#[tokio::test]
async fn only_the_owner_and_administrators_see_a_transfer() {
    let house = house();
    house.post("alice", "/v1/transfers", request("t")).await;
    for call in [
        "GET /v1/transfers/t",
        "GET /v1/transfers/t/files",
        "GET /v1/transfers/t/wait?timeout=0",
        "POST /v1/transfers/t/cancel",
        "POST /v1/transfers/t/pause",
        "POST /v1/transfers/t/resume",
        "POST /v1/transfers/t/retry",
        "DELETE /v1/transfers/t",
        "GET /v1/events?transfer=t&timeout=0",
    ] {
        let (code, body) = house.call("bob", call, Value::Null).await;
        assert_eq!(code, 404, "{call}: {body}");
        assert!(!body.to_string().contains("alice"));
    }
    assert_eq!(
        house
            .call("bob", "PATCH /v1/transfers/t", json!({"priority": 1}))
            .await
            .0,
        404
    );
    let (_, list) = house.get("bob", "/v1/transfers").await;
    assert_eq!(list, json!({"transfers": [], "next": null}));
    let (_, found) = house
        .post("bob", "/v1/transfers/query", json!({"ids": ["t", "u"]}))
        .await;
    assert_eq!(found, json!({"transfers": {"t": null, "u": null}}));
    let (_, all) = house
        .get("root", "/v1/transfers?owner=alice&state=queued&state=live")
        .await;
    assert_eq!(all["transfers"][0]["id"], "t");
    assert_eq!(
        house
            .post("root", "/v1/transfers/t/pause", Value::Null)
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn only_administrators_read_metrics() {
    let house = house();
    house.post("alice", "/v1/transfers", request("t")).await;
    assert_eq!(house.get("alice", "/metrics").await.0, 403);
    let (code, text) = house.get("root", "/metrics").await;
    let text = text.as_str().expect("text");
    assert_eq!(code, 200);
    for line in [
        "dray_transfers{state=\"queued\"} 1",
        "dray_api_requests_total{method=\"POST\",route=\"/v1/transfers\",code=\"201\"} 1",
        "dray_bytes_sent_total 0",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("alice"));
}

#[tokio::test]
async fn storage_calls_run_under_the_owners_account() {
    use crate::accounts::Accounts;
    use crate::accounts::tests::{ALICE, Made, make, may_act};
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().expect("a folder");
    let is_allowed = may_act();
    let owner = if is_allowed { ALICE } else { 0 };
    for name in ["slow", "fast", "slow/hers"] {
        let at = folder.path().join(name);
        match is_allowed {
            true => make(&at, if name == "slow/hers" { owner } else { 0 }, 0o755),
            false => std::fs::create_dir(&at).expect("made"),
        }
    }
    let house = open_with(folder.path(), "", |_| Accounts::made(Box::new(Made)));
    let refused = |(code, error): (u16, Value), words: &str| {
        assert_eq!(
            (code, &error["error"]["kind"]),
            (403, &json!("permission_denied"))
        );
        assert!(
            error["error"]["cause"].to_string().contains(words),
            "{error}"
        );
    };
    let stat = "/v1/storage/stat?path=/slow/hers";
    refused(
        house.get("mallory", stat).await,
        "which this host does not have",
    );
    if !is_allowed {
        refused(house.get("alice", stat).await, "CAP_SETUID");
        eprintln!("left out: acting as another account, which this process may not");
        return;
    }
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("its mode");
    let private = "/slow/hers/private";
    let (code, made) = house
        .post("alice", "/v1/storage/mkdir", json!({"path": private}))
        .await;
    assert_eq!(code, 201, "{made}");
    let at = folder.path().join("slow/hers/private");
    let state = std::fs::metadata(&at).expect("it stands");
    assert_eq!((state.uid(), state.gid()), (ALICE, ALICE));
    make(&at, ALICE, 0o700);
    std::fs::write(at.join("x"), b"hers").expect("a file");
    let list = format!("/v1/storage/list?path={private}");
    assert_eq!(house.get("alice", &list).await.0, 200);
    refused(house.get("bob", &list).await, "ermission");
    let file = format!("/v1/storage/stat?path={private}/x");
    assert_eq!(house.get("alice", &file).await.0, 200);
    refused(house.get("bob", &file).await, "ermission");
    let rm = json!({"path": private, "recursive": true});
    refused(
        house.post("bob", "/v1/storage/rm", rm.clone()).await,
        "ermission",
    );
    assert!(at.join("x").exists());
    assert_eq!(house.post("alice", "/v1/storage/rm", rm).await.0, 200);
    assert!(!at.exists());
}
