//! Tests of overwriting, dry runs, plans, traces and orders.

use crate::scene::{Done, Scene, noise};
use serde_json::Value;
use std::collections::BTreeSet;

fn lines(text: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(parse).collect()
}

fn count(done: &Done, field: &str) -> u64 {
    done.json()[field].as_u64().expect("a number")
}

#[test]
fn overwrite_never_if_different_always() {
    let scene = Scene::new();
    scene
        .write("d/same", b"same")
        .write("d/other", b"other")
        .write("d/new", b"new");
    scene.good(&["cp", "-r", "d/", "t"]);
    std::fs::remove_file(scene.path("t/new")).expect("remove");
    scene.write("t/other", b"changed there");

    let never = scene.good(&["cp", "-r", "d/", "t", "--overwrite", "never", "--json"]);
    assert_eq!(scene.read("t/other"), b"changed there");
    assert_eq!(scene.read("t/new"), b"new");
    assert_eq!(
        (count(&never, "files"), count(&never, "files_skipped")),
        (1, 2)
    );

    let different = scene.good(&["cp", "-r", "d/", "t", "--json"]);
    assert_eq!(scene.read("t/other"), b"other");
    assert_eq!(
        (
            count(&different, "files"),
            count(&different, "files_adopted")
        ),
        (3, 2)
    );
    assert_eq!(count(&different, "bytes_sent"), 5);

    let always = scene.good(&["cp", "-r", "d/", "t", "--overwrite", "always", "--json"]);
    assert_eq!(
        (count(&always, "files"), count(&always, "files_adopted")),
        (3, 0)
    );
    assert_eq!(count(&always, "bytes_sent"), 12);
    assert_eq!(scene.tree("t"), scene.tree("d"));
}

#[test]
fn a_plan_says_what_would_be_done_and_changes_nothing() {
    let scene = Scene::new();
    scene
        .write("d/same", b"same")
        .write("d/other", b"other")
        .write("d/large", &noise(5 << 19, 2))
        .write("d/blocked", b"x");
    let before = scene.tree("");
    let fresh = scene.good(&["cp", "-r", "d", "t", "--dry-run", "--json"]);
    assert_eq!(scene.tree(""), before, "no destination is made");
    assert_eq!(fresh.json()["files_send"], 4);
    assert_eq!(fresh.json()["objects_to_send"], 6);

    scene.good(&["cp", "d/same", "t/"]);
    scene.write("t/other", b"there").folder("t/blocked");
    let before = scene.tree("");
    let done = scene.dray(&[
        "plan",
        "-r",
        "d/",
        "t",
        "--json",
        "--overwrite",
        "if-different",
    ]);
    assert_eq!(done.code, Some(1), "one is refused: {}", done.err);
    assert_eq!(scene.tree(""), before);
    let said = lines(&done.out);
    let fate = |path: &str| {
        let mut found = said.iter().filter(|line| line["path"] == path);
        found
            .next()
            .map(|line| line["fate"].as_str().unwrap_or_default().to_owned())
    };
    for (path, wanted) in [
        ("same", "adopt"),
        ("other", "send"),
        ("large", "send"),
        ("blocked", "refuse"),
    ] {
        assert_eq!(fate(path).as_deref(), Some(wanted), "{path}");
    }
    let done = scene.dray(&["plan", "-r", "d/", "t", "--overwrite", "never"]);
    assert!(done.out.contains("skip    other"), "{}", done.out);
    assert!(done.complaint().contains("blocked"), "{}", done.err);
}

#[test]
fn targets_are_named_in_a_plan() {
    let scene = Scene::new();
    scene
        .write("d/fast/a", &noise(100, 1))
        .write("d/slow/b", &noise(50, 1))
        .folder("t");
    let map = [
        "--target",
        "d/fast=nvme",
        "--target",
        "d/slow=disk",
        "--target",
        "t=tape",
    ];
    let plan = scene.good(&[&["plan", "-r", "d/", "t", "--json"][..], &map].concat());
    assert_eq!(plan.json()["source_targets"]["nvme"], 100);
    assert_eq!(plan.json()["source_targets"]["disk"], 50);
    assert_eq!(plan.json()["sink_targets"]["tape"], 150);

    let layout = scene.good(&[&["plan", "-r", "d/", "t", "--layout", "--json"][..], &map].concat());
    let ranges = layout.out.lines().filter(|line| line.contains("\"range\""));
    let ranges: Vec<serde_json::Value> = ranges
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(ranges.len(), 2, "{}", layout.out);
    let fast = ranges.iter().find(|range| range["length"] == 100);
    let fast = fast.expect("the file of 100 bytes");
    assert_eq!(
        (&fast["source_target"], &fast["sink_target"]),
        (&"nvme".into(), &"tape".into())
    );
    let text = scene.good(&[&["plan", "-r", "d/", "t", "--layout"][..], &map].concat());
    assert!(text.out.contains("disk -> tape"), "{}", text.out);
}

#[test]
fn any_order_gives_the_same_and_a_trace_shows_it() {
    let scene = Scene::new();
    for file in 0..10u64 {
        scene.write(format!("d/f{file}"), &noise(2 << 20, file));
    }
    for order in ["layout", "file", "random:7"] {
        let to = format!("t-{}", order.replace(':', "-"));
        scene.good(&[
            "cp",
            "-r",
            "d/",
            &to,
            "--order",
            order,
            "--object-size",
            "256KiB",
            "--trace",
            "trace",
        ]);
        assert_eq!(scene.tree(&to), scene.tree("d"), "{order}");
        let trace = lines(&String::from_utf8(scene.read("trace")).expect("text"));
        let objects = trace.iter().filter(|line| line.get("object").is_some());
        let order_of_files: Vec<u64> = objects
            .filter_map(|line| line["parts"][0]["file"].as_u64())
            .collect();
        assert_eq!(order_of_files.len(), 80, "{order}");
        assert_eq!(
            trace
                .iter()
                .filter(|line| line.get("path").is_some())
                .count(),
            10
        );
        if order == "random:7" {
            let among: BTreeSet<u64> = order_of_files.iter().take(20).copied().collect();
            assert!(among.len() >= 6, "{order_of_files:?}");
        }
    }
}

#[test]
fn a_rate_is_kept_and_a_limited_target_is_slow() {
    let scene = Scene::new();
    scene.write("a", &noise(2 << 20, 1));
    let limited = [
        // The rate limit lets the first object pass immediately, so objects must be much smaller
        // than the file.
        &["cp", "a", "b", "--rate", "2MiB", "--object-size", "128KiB"][..],
        &[
            "cp",
            "a",
            "c",
            "--target",
            "a=x",
            "--target",
            "/=all",
            "--limit-target",
            "all=2MiB",
        ],
    ];
    for arguments in limited {
        let start = std::time::Instant::now();
        scene.good(arguments);
        let took = start.elapsed().as_secs_f64();
        assert!((0.7..20.0).contains(&took), "{arguments:?} took {took}s");
    }
}

#[test]
fn verify_and_durabilities() {
    let scene = Scene::new();
    scene
        .write("d/a", &noise(1_500_000, 1))
        .write("d/b", b"small")
        .write("d/c", b"");
    for durability in ["none", "file", "object"] {
        let to = format!("t-{durability}");
        scene.good(&[
            "cp",
            "-r",
            "d/",
            &to,
            "--durability",
            durability,
            "--verify",
        ]);
        assert_eq!(scene.tree(&to), scene.tree("d"), "{durability}");
        assert!(scene.is_clean(&to));
    }
}
