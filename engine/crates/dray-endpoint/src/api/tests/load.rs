//! Tests of the calls about running sessions, their promises, their targets and their files.

use super::{house, request};
use crate::live::{Moving, Way};
use dray_api::RateWish;
use dray_core::{End, RelPath, TargetId, TransferId};
use dray_queue::clock;
use dray_runtime::observe::TargetLoad;
use dray_sched::congestion::{Load, Pace};
use dray_session::{FileStage, FolderSums, LiveFile, UnderWay};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn moving(id: &str, owner: &str, peer: &str, way: Way) -> Moving {
    let id = TransferId::new(id).expect("an id");
    let mut moving = Moving::new(
        id,
        owner.to_owned(),
        peer.to_owned(),
        way,
        RateWish::default(),
    );
    moving.roots = vec!["slow".to_owned()];
    moving
}

#[tokio::test]
async fn a_caller_sees_the_sessions_and_the_promises_of_its_owner() {
    let house = house();
    let mut promised = request("promised");
    let deadline = clock::now().after(Duration::from_secs(3600));
    promised["deadline"] = json!(deadline);
    promised["bytes_expected"] = json!(1 << 30);
    let (code, answer) = house.post("alice", "/v1/transfers", promised).await;
    assert_eq!((code, &answer["promised"]), (201, &json!(true)), "{answer}");
    let live = &house.api.live;
    let own = live
        .enter(moving("one", "alice", "", Way::Within))
        .expect("a slot");
    let other = live
        .enter(moving("two", "bob", "b.example", Way::In))
        .expect("a slot");
    own.moving.arrived(7);
    own.moving.hold(true);

    let (code, seen) = house.get("alice", "/v1/endpoint/load").await;
    assert_eq!(code, 200);
    let sessions = &seen["sessions"];
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{seen}");
    assert_eq!(sessions[0]["transfer"], "one");
    assert_eq!(sessions[0]["direction"], "within");
    assert_eq!(sessions[0]["peer"], Value::Null);
    assert_eq!(sessions[0]["roots"], json!(["slow"]));
    assert_eq!(
        (&sessions[0]["moved"], &sessions[0]["held"]),
        (&json!(7), &json!(true))
    );
    assert_eq!(seen["hidden"], json!({"sessions": 1, "promises": 0}));
    let promise = &seen["promises"][0];
    assert_eq!(promise["transfer"], "promised");
    assert_eq!(promise["deadline"], json!(deadline));
    assert_eq!(promise["bytes"], json!(1 << 30));
    assert!(
        promise["latest_start"].as_str() < promise["deadline"].as_str(),
        "{promise}"
    );

    // Neither the transfer nor the peer of another owner is in the answer.
    let (_, seen) = house.get("bob", "/v1/endpoint/load").await;
    assert_eq!(seen["sessions"][0]["peer"], "b.example");
    assert_eq!(seen["hidden"], json!({"sessions": 1, "promises": 1}));
    let (_, none) = house.get("carol", "/v1/endpoint/load").await;
    let hidden = json!({"sessions": 2, "promises": 1});
    assert_eq!(
        none,
        json!({"sessions": [], "promises": [], "hidden": hidden})
    );
    let (_, all) = house.get("root", "/v1/endpoint/load").await;
    assert_eq!(all["hidden"], json!({"sessions": 0, "promises": 0}));
    assert_eq!(all["sessions"].as_array().map(Vec::len), Some(2), "{all}");
    drop((own, other));
    let (_, ended) = house.get("root", "/v1/endpoint/load").await;
    assert_eq!(ended["sessions"], json!([]));
}

#[tokio::test]
async fn the_targets_of_a_transfer_are_shown_to_its_owner() {
    let house = house();
    let live = &house.api.live;
    let session = |id, owner| {
        live.enter(moving(id, owner, "", Way::Within))
            .expect("a slot")
    };
    let (one, two) = (session("one", "alice"), session("two", "bob"));
    for (slot, under_way) in [(&one, 2), (&two, 5)] {
        let load = TargetLoad {
            name: "disk0".to_owned(),
            load: Load {
                target: TargetId(0),
                under_way,
                service: None,
                bound: None,
                pace: Pace::Fair,
            },
        };
        slot.moving.note_targets(End::Source, &[load]);
    }
    let of = async |caller: &str, query: &str| {
        let (code, answer) = house.get(caller, &format!("/v1/targets{query}")).await;
        assert_eq!(code, 200, "{answer}");
        let targets = answer["targets"].as_array().expect("a list").clone();
        let counts = targets.iter().map(|one| one["under_way"].as_u64());
        counts.collect::<Vec<_>>()
    };
    assert_eq!(of("alice", "").await, [Some(7)]);
    assert_eq!(of("alice", "?transfer=one").await, [Some(2)]);
    assert_eq!(of("root", "?transfer=two").await, [Some(5)]);
    assert_eq!(of("alice", "?transfer=two").await, []);
    assert_eq!(of("alice", "?transfer=none").await, []);
    let (code, _) = house.get("alice", "/v1/targets?owner=bob").await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn the_files_under_way_are_shown_to_the_owner_of_the_transfer() {
    let house = house();
    house.post("alice", "/v1/transfers", request("one")).await;
    let place = "/v1/transfers/one/live";
    let empty = json!({"is_reported": false, "files": [], "files_more": 0, "folders": []});
    assert_eq!(house.get("alice", place).await, (200, empty.clone()));
    // A session with a ticket of another endpoint's transfer may have the same id.
    let foreign = house.api.live.enter(moving("one", "alice", "", Way::In));
    assert_eq!(house.get("alice", place).await, (200, empty));
    drop(foreign);

    let mut own = moving("one", "alice", "", Way::Within);
    own.is_own = true;
    let slot = house.api.live.enter(own).expect("a slot");
    let session = Arc::clone(&slot.moving);
    let reporting = std::thread::spawn(move || {
        while !session.takes_under_way(End::Sink) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let file = LiveFile {
            path: RelPath::parse(b"a/<b>\xff\n%\xe2\x80\xae").expect("a path"),
            size: 9,
            bytes_durable: 4,
            stage: FileStage::Verifying,
        };
        let root = FolderSums {
            path: RelPath::root(),
            counts: dray_session::FolderCounts {
                files: 3,
                folders_without_row: 2,
                ..Default::default()
            },
        };
        let found = UnderWay {
            files: vec![file],
            files_more: 7,
            folders: vec![root],
        };
        session.note_under_way(End::Sink, found);
    });
    let (code, found) = house.get("alice", place).await;
    reporting.join().expect("ran");
    let file = json!({
        "path": "a/<b>%FF%0A%25%E2%80%AE", "size": 9, "bytes_done": 4, "state": "verifying",
    });
    assert_eq!((code, &found["files"]), (200, &json!([file])), "{found}");
    assert_eq!(found["files_more"], 7);
    let root = &found["folders"][0];
    assert_eq!((&root["path"], &root["files"]), (&json!(""), &json!(3)));
    assert_eq!(root["folders_more"], 2);

    let refused = house.get("bob", place).await;
    let sibling = house.get("bob", "/v1/transfers/one").await;
    assert_eq!((refused.0, &refused.1), (404, &sibling.1));
    assert_eq!(house.get("root", place).await.0, 200);
}
