//! Tests of exit codes, and of the report that goes with each code.

use crate::scene::{Scene, noise, until};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

const FIELDS: &[&str] = &[
    "bottleneck",
    "bytes",
    "bytes_adopted",
    "bytes_read",
    "bytes_read_back",
    "bytes_resumed",
    "bytes_sent",
    "error",
    "files",
    "files_adopted",
    "files_failed",
    "files_failed_total",
    "files_skipped",
    "files_updated",
    "keeps_nothing",
    "log",
    "notices",
    "objects",
    "objects_resumed",
    "objects_sent",
    "profile",
    "seconds",
    "state",
    "transfer_id",
];

fn assert_shape(report: &Value) {
    let object = report.as_object().expect("an object");
    let fields: Vec<&str> = object.keys().map(String::as_str).collect();
    assert_eq!(fields, FIELDS);
}

#[test]
fn all_safe() {
    let scene = Scene::new();
    scene.write("d/a", b"alpha").write("d/b", b"beta");
    let done = scene.good(&["cp", "-r", "d", "t", "--json", "--transfer-id", "run:1"]);
    let report = done.json();
    assert_shape(&report);
    assert_eq!(report["transfer_id"], "run:1");
    assert_eq!(report["state"], "done");
    assert_eq!(report["files"], 2);
    assert_eq!(report["bytes"], 9);
    assert_eq!(report["objects"], report["objects_sent"]);
    assert_eq!(report["bytes_sent"], 9);
    assert_eq!(report["bytes_read"], 9);
    assert_eq!(report["error"], Value::Null);
    assert!(done.err.contains("run:1"));
}

#[test]
fn some_failed_and_the_rest_is_safe() {
    let scene = Scene::new();
    scene.write("d/a", b"alpha").write("d/z", b"omega");
    std::os::unix::fs::symlink("a", scene.path("d/link")).expect("make a link");
    let done = scene.dray(&["cp", "-r", "d", "gone", "t", "--links", "refuse", "--json"]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    let report = done.json();
    assert_shape(&report);
    assert_eq!(report["state"], "failed");
    assert_eq!(report["files"], 2);
    assert_eq!(report["files_failed_total"], 2);
    let failures = report["files_failed"].as_array().expect("a list");
    let paths: Vec<&str> = failures.iter().filter_map(|f| f["path"].as_str()).collect();
    assert_eq!(paths, ["d/link", "gone"]);
    for failure in failures {
        assert_eq!(failure["end"], "source");
        for field in ["kind", "cause", "remedy", "message", "status"] {
            assert!(failure[field].is_string(), "{field} of {failure}");
        }
    }
    assert_eq!(scene.read("t/d/a"), b"alpha");
    assert_eq!(scene.read("t/d/z"), b"omega");
    assert!(scene.is_clean("t"));
    // The next copy of the same folder succeeds.
    scene.good(&["cp", "-r", "d", "t"]);
}

#[test]
fn a_mistyped_source_leaves_no_folder() {
    let scene = Scene::new();
    let done = scene.dray(&["cp", "-r", "gone", "t", "--json"]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.complaint().contains("gone does not exist"),
        "{}",
        done.err
    );
    assert_eq!(done.json()["files_failed_total"], 1);
    assert!(!scene.exists("t"));
}

#[test]
fn a_folder_where_the_file_should_be() {
    let scene = Scene::new();
    scene.write("a", b"alpha").folder("t/a");
    let done = scene.dray(&["cp", "a", "t", "--json"]);
    assert_eq!(done.code, Some(3));
    assert!(
        done.complaint()
            .contains("write t/ to copy into the folder"),
        "{}",
        done.err
    );
    assert_eq!(done.json()["state"], "refused");
    // In the existing folder `t`, only the file `a` fails, because a folder in `t` already has the
    // name `a`.
    let done = scene.dray(&["cp", "a", "t/"]);
    assert_eq!(done.code, Some(1));
    let complaint = done.complaint();
    assert!(
        complaint.contains("at the sink: a: is a folder"),
        "{complaint}"
    );
    assert!(scene.path("t/a").is_dir());
}

#[test]
fn a_file_where_the_folder_should_be() {
    let scene = Scene::new();
    scene.write("a", b"alpha").write("t", b"a file");
    for arguments in [
        &["cp", "a", "t/"][..],
        &["cp", "a", "t/b"],
        &["cp", "-r", "a", "t"],
    ] {
        let done = scene.dray(arguments);
        assert_eq!(done.code, Some(3), "{arguments:?}: {}", done.err);
        assert!(done.complaint().contains("not a folder"), "{}", done.err);
    }
    assert_eq!(scene.read("t"), b"a file");
}

#[test]
fn a_folder_that_may_not_be_written() {
    if rustix::process::geteuid().is_root() {
        return; // Root may write anywhere.
    }
    let scene = Scene::new();
    scene.write("a", b"alpha").folder("t");
    let locked = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(scene.path("t"), locked).expect("lock it");
    let done = scene.dray(&["cp", "a", "t/", "--json"]);
    assert_eq!(done.code, Some(3), "{}", done.err);
    assert_eq!(done.json()["error"]["kind"], "permission_denied");
}

#[test]
fn two_copies_to_one_destination() {
    let scene = Scene::new();
    scene.write("d/a", &noise(4 << 20, 1));
    let slow = &[
        "cp",
        "-r",
        "d",
        "t",
        "--rate",
        "1M",
        "--transfer-id",
        "the-first",
        "-q",
    ];
    let first = scene.start(slow);
    until("the first one's log", || scene.exists("t/.dray-log"));
    // Wait for the partial file: the lease exists before the partial file.
    until("the first one's partial file", || {
        scene.exists("t/d") && !scene.is_clean("t/d")
    });
    let done = scene.dray(&["cp", "-r", "d", "t", "--json"]);
    assert_eq!(done.code, Some(3), "{}", done.err);
    assert!(done.complaint().contains("the-first"), "{}", done.err);
    let report = done.json();
    assert_eq!(report["state"], "refused");
    assert_eq!(report["error"]["kind"], "lease_held");
    assert_eq!(scene.dray(&["plan", "-r", "d", "t"]).code, Some(3));
    let first = first.wait();
    assert_eq!(first.code, Some(0), "{}", first.err);
    assert_eq!(scene.tree("t/d"), scene.tree("d"));
    assert!(scene.is_clean("t"));
}

#[test]
fn nobody_there() {
    let scene = Scene::new();
    scene.write("a", b"alpha").write("token", b"secret");
    let key = format!("sha256:{}", "0".repeat(64));
    let to = "dray://127.0.0.1:1/a";
    let call = &[
        "cp",
        "a",
        to,
        "--peer-key",
        &key,
        "--token-file",
        "token",
        "--json",
    ];
    let done = scene.dray(call);
    assert_eq!(done.code, Some(4), "{}", done.err);
    let report = done.json();
    assert_shape(&report);
    assert_eq!(report["state"], "failed");
    assert_eq!(report["error"]["kind"], "unreachable");
    assert!(done.complaint().contains("127.0.0.1:1"));
}
