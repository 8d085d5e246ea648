//! Tests of the call about the object log of a transfer.

use super::house;
use serde_json::{Value, json};

const KEY: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

#[tokio::test]
async fn a_log_is_read_only_here_and_only_for_its_owner() {
    let house = house();
    for (id, destination) in [
        ("near", json!({"url": "/fast/a"})),
        (
            "far",
            json!({"url": "dray://b.example/data/a", "ticket": "drt_x", "key": KEY}),
        ),
    ] {
        let request = json!({
            "id": id,
            "sources": [{"url": "/slow/a"}],
            "destination": destination,
        });
        let (code, answer) = house.post("alice", "/v1/transfers", request).await;
        assert_eq!(code, 201, "{answer}");
    }
    let none = json!({"endpoint": null, "log": null, "files": [], "next": null});
    let call = |id: &str, more: &str| format!("/v1/transfers/{id}/log{more}");
    for who in ["alice", "root"] {
        assert_eq!(
            house.get(who, &call("near", "")).await,
            (200, none.clone()),
            "{who}"
        );
        let (code, far) = house.get(who, &call("far", "")).await;
        assert_eq!((code, &far["log"]), (200, &Value::Null));
        let address = far["endpoint"].as_str().expect("an address");
        assert!(address.starts_with("b.example"), "{address}");
    }
    for (who, code) in [("bob", 404), ("", 401)] {
        assert_eq!(house.get(who, &call("near", "")).await.0, code, "{who:?}");
    }
    for wrong in ["?limit=0", "?limit=1001", "?cursor=..%2Fx", "?after=x"] {
        let (code, answer) = house.get("alice", &call("near", wrong)).await;
        assert!([400, 413].contains(&code), "{wrong}: {code} {answer}");
    }
}
