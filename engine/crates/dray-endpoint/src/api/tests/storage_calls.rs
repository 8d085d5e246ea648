//! Tests of the calls about files in the roots, and of staging.

use super::{House, house, request};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

fn fill(house: &House) {
    let slow = house.place.join("slow");
    std::fs::create_dir_all(slow.join("run/deep")).expect("made");
    std::fs::write(slow.join("run/a"), b"123456789").expect("written");
    std::fs::write(slow.join("run/deep/100%"), b"x").expect("written");
    symlink("/etc", slow.join("etc")).expect("linked");
}

#[tokio::test]
async fn storage_calls_stay_beneath_their_root() {
    let house = house();
    fill(&house);
    for (path, code) in [
        ("/slow/run/a", 200),
        ("/slow/run", 200),
        ("/slow", 200),
        ("/slow/run/deep/100%2525", 200),
        ("/slow/etc", 200),
        ("/slow/etc/passwd", 400),
        ("/slow/../slow/run", 400),
        ("/slow/%2e%2e/fast", 400),
        ("/slow/%252e%252e/fast", 400),
        ("/slow/run%2F..%2F..", 400),
        ("/slow/.dray-log", 400),
        ("/slow/none", 404),
        ("/none", 404),
        ("slow", 400),
        ("", 400),
    ] {
        let (told, body) = house
            .get("alice", &format!("/v1/storage/stat?path={path}"))
            .await;
        assert_eq!(told, code, "{path}: {body}");
    }
    let (_, link) = house.get("alice", "/v1/storage/stat?path=/slow/etc").await;
    assert_eq!(
        (&link["type"], &link["link"]),
        (&json!("symlink"), &json!("/etc"))
    );
    assert_eq!(
        house
            .get("alice", "/v1/storage/list?path=/slow/etc")
            .await
            .0,
        400
    );
    let sum = json!({"path": "/slow/etc/passwd", "algorithm": "adler32"});
    assert_eq!(
        house.post("alice", "/v1/storage/checksum", sum).await.0,
        400
    );
}

#[tokio::test]
async fn storage_calls_do_what_the_reference_says() {
    let house = house();
    fill(&house);
    let (code, page) = house
        .get("alice", "/v1/storage/list?path=/slow/run&limit=1")
        .await;
    assert_eq!(
        (code, &page["entries"][0]["path"]),
        (200, &json!("/slow/run/a"))
    );
    let next = page["next"].as_str().expect("more");
    let path = format!("/v1/storage/list?path=/slow/run&cursor={next}");
    let (_, page) = house.get("alice", &path).await;
    assert_eq!(
        (&page["entries"][0]["name"], &page["next"]),
        (&json!("deep"), &Value::Null)
    );
    let post = async |path: &str, body| {
        house
            .post("alice", &format!("/v1/storage/{path}"), body)
            .await
    };
    let made = json!({"path": "/fast/a/b"});
    assert_eq!(post("mkdir", made.clone()).await.0, 201);
    assert_eq!(post("mkdir", made).await.0, 200);
    assert_eq!(
        post("mkdir", json!({"path": "/fast/x/y", "parents": false}))
            .await
            .0,
        404
    );
    let sum = json!({"path": "/slow/run/a", "algorithm": "adler32"});
    let (_, sum) = post("checksum", sum).await;
    assert_eq!(
        (&sum["checksum"], &sum["from"]),
        (&json!("091e01de"), &json!("read"))
    );
    let md5 = json!({"path": "/slow/run/a", "algorithm": "md5"});
    assert_eq!(post("checksum", md5).await.0, 400);
    let (code, entry) = post("rename", json!({"from": "/slow/run/a", "to": "/slow/b"})).await;
    assert_eq!((code, &entry["path"]), (200, &json!("/slow/b")));
    assert_eq!(
        post("rename", json!({"from": "/slow/b", "to": "/fast/b"}))
            .await
            .0,
        400
    );
    let (_, space) = house.get("alice", "/v1/storage/space?path=/slow").await;
    assert!(space["total"].as_u64() >= space["free"].as_u64());
    assert_eq!(post("rm", json!({"path": "/slow/run"})).await.0, 409);
    let (code, gone) = post("rm", json!({"path": "/slow/run", "recursive": true})).await;
    assert_eq!((code, gone), (200, json!({"removed": 3})));
    assert_eq!(post("rm", json!({"path": "/slow/run"})).await.0, 404);
}

#[tokio::test]
async fn calls_of_parts_that_are_not_configured_are_refused() {
    let house = house();
    let ticket = json!({"transfer": "t", "direction": "read", "paths": ["/slow/a"],
        "peer_key": format!("sha256:{}", "0".repeat(64))});
    assert_eq!(
        house.post("alice", "/v1/tickets", ticket.clone()).await.0,
        501
    );
    assert_eq!(house.get("alice", "/v1/tickets").await.0, 501);
    let mut bad = ticket.clone();
    bad["peer_key"] = json!("sha256:0");
    assert_eq!(house.post("alice", "/v1/tickets", bad).await.0, 400);
    let mut out = ticket;
    out["paths"] = json!(["/slow/../x"]);
    assert_eq!(house.post("alice", "/v1/tickets", out).await.0, 400);
    let many = json!({"path": "/slow/a", "replicas": 2});
    let (code, refused) = house.post("alice", "/v1/staging/in", many).await;
    assert_eq!(code, 400);
    assert!(
        refused
            .to_string()
            .contains("the request asks for 2 replicas, but at most 1 can be made"),
        "{refused}"
    );
    let admit = json!({"transfers": [request("t")]});
    let (code, answer) = house.post("alice", "/v1/admission", admit).await;
    assert_eq!((code, &answer["decision"]), (200, &json!("accept")));
    let nothing = json!({"promised": false, "rate": null, "finish": null, "latest": null,
        "earliest_finish": null, "rate_needed": null, "rate_available": null, "reasons": []});
    assert_eq!(answer["transfers"], json!([nothing]), "it asks for nothing");
    assert_eq!(
        house.get("alice", "/v1/transfers/t").await.0,
        404,
        "it changed nothing"
    );
}

#[tokio::test]
async fn a_copy_is_staged_pinned_and_evicted() {
    use dray_queue::Ending;
    let house = house();
    fill(&house);
    let wanted = json!({"id": "s", "path": "/slow/run", "recursive": true, "pin_seconds": 3600,
        "application": "xgc", "lifetime_seconds": 7200});
    let (code, staged) = house.post("alice", "/v1/staging/in", wanted.clone()).await;
    assert_eq!(code, 201, "{staged}");
    assert_eq!(
        (&staged["to"], &staged["state"]),
        (&json!("/fast/run"), &json!("queued"))
    );
    assert_eq!(house.post("alice", "/v1/staging/in", wanted).await.0, 200);
    let (_, transfer) = house.get("alice", "/v1/transfers/s").await;
    assert_eq!(transfer["request"]["destination"]["url"], "/fast/run/");
    let evict = async || {
        house
            .post("alice", "/v1/staging/s/evict", Value::Null)
            .await
    };
    assert_eq!(evict().await.0, 409, "not there yet");
    let queue = &house.api.queue;
    let id = dray_core::TransferId::new("s").expect("good");
    queue.begin(&id, 1).expect("written").expect("queued");
    assert_eq!(
        house.get("alice", "/v1/staging/s").await.1["state"],
        "moving"
    );
    let copy = std::process::Command::new("cp")
        .args(["-a", "slow/run", "fast/run"])
        .current_dir(&house.place)
        .status();
    assert!(copy.expect("ran").success());
    queue.ended(&id, Ending::Done).expect("ended");
    let (_, staged) = house.get("alice", "/v1/staging/s").await;
    assert_eq!(staged["state"], "staged");
    assert!(staged["pinned_until"].is_string() && staged["expires_at"].is_string());
    assert_eq!(evict().await.0, 409, "pinned");
    assert_eq!(
        house
            .post("bob", "/v1/staging/s/evict", Value::Null)
            .await
            .0,
        404
    );
    let pin = json!({"lifetime_seconds": 1});
    assert_eq!(house.post("alice", "/v1/staging/s/pin", pin).await.0, 200);
    std::fs::write(house.place.join("fast/run/new"), b"only here").expect("written");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let (code, error) = evict().await;
    assert_eq!(code, 409);
    assert!(error.to_string().contains("/fast/run/new"), "{error}");
    std::fs::remove_file(house.place.join("fast/run/new")).expect("removed");
    let (code, gone) = evict().await;
    assert_eq!((code, &gone["state"]), (200, &json!("evicted")));
    assert!(!house.place.join("fast/run").exists() && house.place.join("slow/run/a").exists());
    assert_eq!(evict().await.0, 200, "twice is once");
    let (_, list) = house
        .get("alice", "/v1/staging?application=xgc&state=evicted")
        .await;
    assert_eq!(list["staging"].as_array().expect("a list").len(), 1);
    let (code, _) = house
        .post("alice", "/v1/staging/out", json!({"path": "/slow/run"}))
        .await;
    assert_eq!(code, 400);
}
