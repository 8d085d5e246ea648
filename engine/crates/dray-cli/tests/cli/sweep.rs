//! Tests of the partial data of interrupted copies: `dray log` shows the logs in all folders below
//! a path, and `sweep` keeps partial data that may still be wanted.

use crate::scene::{Scene, noise, until};
use rustix::process::Signal;

/// Starts a copy of `d` to `to`, and interrupts it.
fn broken_off(scene: &Scene, to: &str) {
    scene.folder(to);
    let mut running = scene.start(&["cp", "-r", "d", to, "--rate", "3MiB"]);
    until("something safe", || {
        let shown = scene.dray(&["log", "show", to, "--json"]).json();
        shown["logs"][0]["files"][0]["bytes_safe"].as_u64() > Some(0)
    });
    let held = scene.good(&["log", "sweep", to, "--json"]).json();
    assert_eq!((&held["in_use"], &held["removed"]), (&1.into(), &0.into()));
    running.signal(Signal::INT);
    assert_eq!(running.wait().code, Some(5));
}

#[test]
fn logs_below_are_shown_on_demand() {
    let scene = Scene::new();
    scene.write("d/large", &noise(8 << 20, 1));
    broken_off(&scene, "t/in/deep");
    let above = scene.good(&["log", "show", "t"]);
    assert!(above.out.contains("--recursive"), "{}", above.out);
    let shown = scene.good(&["log", "show", "-r", "t", "--json"]).json();
    let logs = shown["logs"].as_array().expect("a list");
    assert_eq!(logs.len(), 1);
    assert_eq!(logs[0]["files"][0]["path"], "d/large");
    // The log in the top folder is shown only once.
    let own = scene
        .good(&["log", "verify", "-r", "t/in/deep", "--json"])
        .json();
    assert_eq!(own["logs"].as_array().map(Vec::len), Some(1));
    assert_eq!(own["mismatches"], 0);
}

#[test]
fn a_sweep_leaves_what_may_still_be_wanted() {
    let scene = Scene::new();
    scene.write("d/large", &noise(8 << 20, 1));
    broken_off(&scene, "t");
    for way in [&["--dry-run"][..], &[], &["--older-than", "1h"]] {
        let arguments = [&["log", "sweep", "t", "--json"], way].concat();
        let sum = scene.good(&arguments).json();
        assert_eq!((&sum["younger"], &sum["removed"]), (&1.into(), &0.into()));
    }
    let words = scene.good(&["log", "sweep", "t"]).out;
    assert_eq!(
        words,
        "removed 0 leftovers (0 B in total); kept 0 in use and 1 younger than 30 days\n"
    );
    for early in ["59m", "1", "h", "", "-1d", "99999999999999999w"] {
        let done = scene.dray(&["log", "sweep", "t", "--older-than", early]);
        assert_eq!(done.code, Some(2), "{early}");
    }
    let done = scene.good(&["cp", "-r", "d", "t", "--json"]).json();
    assert!(done["bytes_resumed"].as_u64() > Some(0));
    assert_eq!(scene.tree("t/d"), scene.tree("d"));
}

#[test]
fn a_sweep_counts_young_partial_files_that_no_log_speaks_of() {
    let scene = Scene::new();
    for number in 0..10 {
        scene.write(format!("t/.dray-0123456789abcde{number}.part"), b"left");
    }
    let words = scene.good(&["log", "sweep", "t"]).out;
    assert_eq!(
        words,
        "removed 0 leftovers (0 B in total); kept 0 in use and 10 younger than 30 days\n"
    );
}

#[test]
fn a_sweep_names_what_it_cannot_read_and_leaves_it() {
    let scene = Scene::new();
    scene.write("t/a/.dray-log/0123456789abcdef.log", b"not a log");
    let done = scene.dray(&["log", "sweep", "t"]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.complaint().contains("0123456789abcdef.log"),
        "{}",
        done.err
    );
    assert!(scene.exists("t/a/.dray-log/0123456789abcdef.log"));
    assert_eq!(scene.dray(&["log", "sweep", "nowhere"]).code, Some(3));
}
