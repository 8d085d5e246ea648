//! Tests of the errors of storage calls: no error mentions an end of a transfer or an option of a
//! command.

use super::{House, house};
use serde_json::{Value, json};

async fn refused(house: &House, call: &str, body: Value) -> (u16, Value) {
    let (code, answer) = house.call("alice", call, body).await;
    (code, answer["error"].clone())
}

#[tokio::test]
async fn errors_of_storage_calls_name_no_sink_and_no_options() {
    let house = house();
    std::fs::create_dir(house.place.join("slow/folder")).expect("made");
    std::fs::write(house.place.join("slow/file"), "x").expect("written");
    let sum = |path: &str| json!({"path": path, "algorithm": "crc32c"});
    for (call, body, code, said) in [
        ("checksum", sum("/slow/none"), 404, "not found"),
        ("checksum", sum("/slow/folder"), 409, "name a file"),
        ("checksum", sum("/slow/file/x"), 409, "not a folder"),
        ("mkdir", json!({"path": "/slow/file"}), 409, "not a folder"),
        (
            "mkdir",
            json!({"path": "/slow/file", "parents": false}),
            409,
            "not a folder",
        ),
        (
            "mkdir",
            json!({"path": "/slow/none/x", "parents": false}),
            404,
            "not found",
        ),
        (
            "rename",
            json!({"from": "/slow/file", "to": "/slow/folder"}),
            409,
            "remove the existing",
        ),
        ("rm", json!({"path": "/slow/file/x"}), 409, "not a folder"),
    ] {
        let call = format!("POST /v1/storage/{call}");
        let (answered, error) = refused(&house, &call, body.clone()).await;
        let words = error["message"].as_str().expect("words");
        assert_eq!(
            (answered, &error["end"]),
            (code, &json!("here")),
            "{call} {body}: {words}"
        );
        assert!(words.contains(said), "{call} {body}: {words}");
        for foreign in ["sink", "source", "--", "destination"] {
            assert!(!words.contains(foreign), "{call} {body}: {words}");
        }
    }
}

#[tokio::test]
async fn free_space_is_reported_for_existing_paths() {
    let house = house();
    let told = house.get("alice", "/v1/storage/space?path=/slow").await;
    assert_eq!(told.0, 200);
    for call in ["stat", "space"] {
        let call = format!("/v1/storage/{call}?path=/slow/none");
        assert_eq!(house.get("alice", &call).await.0, 404, "{call}");
    }
}

#[tokio::test]
async fn a_path_without_a_root_is_refused_with_the_place_of_the_list_of_roots() {
    let house = house();
    let (code, answer) = house.get("alice", "/v1/storage/list?path=/").await;
    let remedy = answer["error"]["remedy"].as_str().expect("words");
    assert_eq!(code, 400);
    assert!(remedy.contains("GET /v1/endpoint"), "{remedy}");
}
