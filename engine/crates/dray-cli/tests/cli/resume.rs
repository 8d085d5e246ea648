//! Tests of stopping and resuming.

use crate::scene::{Done, Scene, noise, until};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;

const SIZE: u64 = 8 << 20;

fn scene() -> Scene {
    let scene = Scene::new();
    scene
        .write("d/large", &noise(8 << 20, 11))
        .write("d/small", b"small");
    scene
}

/// Returns the number of durable bytes in the logs at `t`.
fn safe(scene: &Scene) -> u64 {
    let done = scene.dray(&["log", "show", "t", "--json"]);
    let files = &done.json()["logs"][0]["files"];
    let files = files.as_array().into_iter().flatten();
    files.filter_map(|file| file["bytes_safe"].as_u64()).sum()
}

fn slow(scene: &Scene) -> crate::scene::Running {
    scene.folder("t");
    let running = scene.start(&["cp", "-r", "d", "t", "--rate", "3MiB", "--json"]);
    until("something safe", || safe(scene) > 0);
    running
}

fn assert_goes_on(scene: &Scene, at_least: u64) -> Done {
    let done = scene.good(&["cp", "-r", "d", "t", "--json"]);
    let report = done.json();
    assert_eq!(scene.tree("t/d"), scene.tree("d"));
    assert!(scene.is_clean("t"));
    let number = |field: &str| report[field].as_u64().expect("a number");
    assert!(number("bytes_resumed") >= at_least, "{report}");
    assert!(
        number("bytes_sent") <= SIZE - number("bytes_resumed") + 5,
        "{report}"
    );
    assert_eq!(
        number("bytes_read"),
        number("bytes_sent"),
        "what is safe is not read: {report}"
    );
    assert!(number("objects_resumed") > 0);
    done
}

#[test]
fn the_first_signal_stops_and_keeps() {
    for signal in [Signal::INT, Signal::TERM] {
        let scene = scene();
        let mut running = slow(&scene);
        running.signal(signal);
        let done = running.wait();
        assert_eq!(done.code, Some(5), "{}", done.err);
        let report = done.json();
        assert_eq!(report["state"], "cancelled");
        assert_eq!(report["error"], Value::Null);
        assert!(
            !scene.exists("t/d/large"),
            "nothing incomplete under a final name"
        );
        let kept = safe(&scene);
        assert!(kept > 0 && kept < SIZE);
        assert_goes_on(&scene, kept);
    }
}

#[test]
fn the_second_signal_stops_at_once() {
    let scene = scene();
    let mut running = slow(&scene);
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let done = running.wait();
    assert_eq!(done.code, Some(5));
    // Exactly one thread reports the outcome.
    let report = done.json();
    assert_eq!(report["state"], "cancelled");
    assert!(
        report["bytes_sent"].as_u64().is_some_and(|sent| sent > 0),
        "{report}"
    );
    assert_goes_on(&scene, 0);
}

#[test]
fn a_killed_process_goes_on() {
    let scene = scene();
    let mut running = slow(&scene);
    let kept = safe(&scene);
    running.child().kill().expect("kill it");
    let status = running.child().wait().expect("it ends");
    assert_eq!(status.signal(), Some(9));
    assert!(!scene.exists("t/d/large"));
    // A plan shows the data that can be resumed.
    let plan = scene.good(&["plan", "-r", "d", "t"]);
    assert!(plan.out.contains("resume  d/large"), "{}", plan.out);
    assert_goes_on(&scene, kept);
}

#[test]
fn objects_keep_their_size_whatever_the_next_run_asks() {
    for (first, second) in [("256KiB", "1MiB"), ("2MiB", "64KiB")] {
        let scene = scene();
        scene.folder("t");
        let arguments = [
            "cp",
            "-r",
            "d",
            "t",
            "--rate",
            "3MiB",
            "--object-size",
            first,
        ];
        let mut running = scene.start(&arguments);
        until("something safe", || safe(&scene) > 0);
        running.signal(Signal::INT);
        assert_eq!(running.wait().code, Some(5));
        let kept = safe(&scene);
        let report = scene
            .good(&["cp", "-r", "d", "t", "--json", "--object-size", second])
            .json();
        assert_eq!(report["bytes_resumed"], kept, "{first} then {second}");
        assert_eq!(scene.tree("t/d"), scene.tree("d"));
    }
}

#[test]
fn a_changed_source_is_not_mixed() {
    let scene = scene();
    let mut running = slow(&scene);
    running.signal(Signal::INT);
    assert_eq!(running.wait().code, Some(5));
    scene.write("d/large", &noise(8 << 20, 12));
    let done = scene.good(&["cp", "-r", "d", "t", "--json"]);
    let report = done.json();
    assert_eq!(report["bytes_resumed"], 0);
    let notices = report["notices"].to_string();
    assert!(
        notices.contains("d/large") && notices.contains("changed"),
        "{notices}"
    );
    assert_eq!(scene.tree("t/d"), scene.tree("d"));
}

#[test]
fn logs_are_shown_and_verified() {
    let scene = scene();
    let none = scene.good(&["log", "show", "d"]);
    assert!(none.out.contains("nothing is unfinished"), "{}", none.out);
    let mut running = slow(&scene);
    running.signal(Signal::INT);
    running.wait();
    let shown = scene.good(&["log", "show", "t/d/large", "--json"]).json();
    let log = &shown["logs"][0];
    assert_eq!(log["claims"][0], "d");
    assert_eq!(log["files"][0]["path"], "d/large");
    let path = log["path"].as_str().expect("a path").to_owned();
    let by_name = scene.good(&["log", "show", &path, "--json"]).json();
    assert_eq!(by_name["logs"][0], *log);
    assert_eq!(
        scene.good(&["log", "verify", "t", "--json"]).json()["mismatches"],
        0
    );
    let partial = log["files"][0]["partial"].as_str().expect("a name");
    let offset = log["files"][0]["safe"][0]["offset"]
        .as_u64()
        .expect("a number");
    let file = std::fs::File::options()
        .write(true)
        .open(scene.path("t/d").join(partial));
    let file = file.expect("the partial file");
    std::os::unix::fs::FileExt::write_all_at(&file, b"spoilt", offset).expect("spoil it");
    let done = scene.dray(&["log", "verify", "t", "--json"]);
    assert_eq!(done.code, Some(1));
    assert_eq!(done.json()["mismatches"], 1);
    assert!(done.complaint().contains("d/large"), "{}", done.err);
    assert_eq!(scene.dray(&["log", "show", "no/such/place"]).code, Some(2));
}
