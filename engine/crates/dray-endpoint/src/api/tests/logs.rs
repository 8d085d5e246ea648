//! Tests of the call about the object log of a transfer.

use super::house;
use dray_core::options::Durability;
use dray_core::{ContentKey, ModifiedTime, RelPath, TransferId};
use dray_log::{
    BootId, FileBegin, Header, MemoryFile, ObjectLog, PartialFile, Tenure, UniversalLog, layout,
};
use dray_runtime::sink::{DestinationRequest, ReadLog};
use dray_store::{PosixOptions, PosixStore};
use serde_json::{Value, json};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KEY: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// Writes the log of an interrupted transfer of these files to the folder `top`. Returns the path of
/// the log.
pub(crate) fn interrupted(top: &Path, transfer: &str, files: &[&str]) -> PathBuf {
    let transfer = TransferId::new(transfer).expect("an id");
    let tenure = Tenure {
        epoch: 1,
        holder: "a test".to_owned(),
        transfer: transfer.clone(),
        boot_id: BootId::new(&[1; 16]).expect("an id"),
        durability: Durability::File,
    };
    let claims = [RelPath::parse(b"a").expect("a path")];
    let header = Header::new(claims.to_vec(), b"alice".to_vec(), 1, "test", tenure);
    let mut log = UniversalLog::create(MemoryFile::new(), header).expect("memory");
    for (number, name) in files.iter().enumerate() {
        let path = RelPath::parse(name.as_bytes()).expect("a path");
        let last = path.name().expect("a name");
        let begun = log.begin_file(FileBegin {
            path,
            key: ContentKey {
                size: 9,
                demanded: None,
                modified: ModifiedTime::default(),
                precision_nanoseconds: 1,
                identity: Vec::new(),
            },
            object_bytes: NonZeroU64::MIN,
            partial: PartialFile {
                name: layout::partial_name(&last).expect("a name"),
                device: 1,
                inode: number as u64,
                born: 0,
            },
        });
        begun.expect("begun");
    }
    log.commit().expect("committed");
    let logs = top.join(".dray-log");
    std::fs::create_dir_all(&logs).expect("made");
    let name = layout::log_name(&claims, &transfer).expect("a name");
    let path = logs.join(name.to_string());
    std::fs::write(&path, log.into_file().bytes()).expect("written");
    path
}

/// Reads the log that [`interrupted`] has written.
pub(crate) fn read_log(top: &Path, transfer: &str) -> ReadLog {
    let store = PosixStore::open(top, dray_core::End::Sink, PosixOptions::default());
    let request = DestinationRequest {
        store: Arc::new(store.expect("a store")),
        above: None,
        claims: vec![RelPath::parse(b"a").expect("a path")],
        transfer: TransferId::new(transfer).expect("an id"),
        owner: b"alice".to_vec(),
        durability: Durability::File,
        log: None,
        words: "/".to_owned(),
    };
    let log = request.read_log(None).expect("readable").expect("a log");
    log.read
}

#[tokio::test]
async fn the_pages_of_a_log_need_one_reading() {
    let house = house();
    let request = json!({
        "id": "t",
        "sources": [{"url": "/slow/a"}],
        "destination": {"url": "/fast/a"},
    });
    let (code, answer) = house.post("alice", "/v1/transfers", request).await;
    assert_eq!(code, 201, "{answer}");
    let path = interrupted(&house.place.join("fast"), "t", &["a/x", "a/y", "a/z"]);
    let first = house.get("alice", "/v1/transfers/t/log?limit=1").await;
    let page = |cursor: &Value| {
        let cursor = cursor.as_str().expect("a cursor");
        format!("/v1/transfers/t/log?limit=1&cursor={cursor}")
    };
    let name = |answer: &Value| answer["files"][0]["path"].clone();
    assert_eq!((first.0, name(&first.1)), (200, json!("a/x")), "{first:?}");
    // Another program destroys the log and keeps its size and time. The next page shows that the
    // log is not read again.
    let file = std::fs::File::options().write(true).open(&path);
    let file = file.expect("opened");
    let state = file.metadata().expect("a file");
    file.write_all_at(b"X", 0).expect("written");
    let time = |at| file.set_modified(at).expect("set");
    time(state.modified().expect("a time"));
    let second = house.get("alice", &page(&first.1["next"])).await;
    assert_eq!(
        (second.0, name(&second.1)),
        (200, json!("a/y")),
        "{second:?}"
    );
    // A change of the log is noticed.
    time(std::time::SystemTime::UNIX_EPOCH);
    let third = house.get("alice", &page(&second.1["next"])).await;
    assert_ne!(third.0, 200, "{third:?}");
    file.write_all_at(b"D", 0).expect("written");
    let third = house.get("alice", &page(&second.1["next"])).await;
    assert_eq!((third.0, name(&third.1)), (200, json!("a/z")), "{third:?}");
    assert_eq!(third.1["next"], Value::Null);
}

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
