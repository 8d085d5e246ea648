//! Tests of the version, help, the reference, and JSON output.

use crate::scene::{Scene, noise};
use serde_json::Value;
use std::process::Stdio;

#[test]
fn version_and_help() {
    let scene = Scene::new();
    assert_eq!(scene.good(&["--version"]).out, "dray 0.1.0\n");
    assert_eq!(scene.good(&["version"]).out, "dray 0.1.0\n");
    let help = scene.good(&["cp", "--help"]).out;
    for words in ["Examples:", "--overwrite", "never depends on what exists"] {
        assert!(help.contains(words), "{words}");
    }
    assert!(scene.good(&["--help"]).out.contains("Exit codes:"));
    assert!(scene.good(&["completion", "bash"]).out.contains("dray"));
}

#[test]
fn the_reference_is_what_the_program_says() {
    let scene = Scene::new();
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/reference/cli.md"
    );
    let written = std::fs::read_to_string(file).expect("docs/reference/cli.md");
    let said = scene.good(&["docs-cli"]).out;
    assert!(
        written == said,
        "run `dray docs-cli > docs/reference/cli.md`"
    );
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let scene = Scene::new();
    scene.write("a", b"alpha");
    for arguments in [&["docs-cli"][..], &["--help"], &["cp", "a", "b", "--json"]] {
        let mut command = scene.command(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start dray");
        drop(child.stdout.take());
        drop(child.stderr.take());
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
    assert_eq!(scene.read("b"), b"alpha");
}

#[test]
fn the_feed_names_every_file() {
    let scene = Scene::new();
    scene
        .write("d/a", &noise(2 << 20, 1))
        .write("d/b", b"123456789");
    std::os::unix::fs::symlink("a", scene.path("d/link")).expect("make a link");
    let done = scene.dray(&[
        "cp",
        "-r",
        "d",
        "t",
        "--progress",
        "json",
        "--links",
        "refuse",
        "--json",
    ]);
    assert_eq!(done.code, Some(1));
    let lines: Vec<Value> = done
        .err
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let of = |event: &'static str| lines.iter().filter(move |line| line["event"] == event);
    assert_eq!(of("start").count(), 1);
    let b = of("file").find(|line| line["path"] == "d/b").expect("b");
    assert_eq!(b["state"], "done");
    assert_eq!(b["adler32"], "091e01de");
    assert_eq!(b["crc32c"], "e3069283");
    let link = of("file")
        .find(|line| line["path"] == "d/link")
        .expect("the link");
    assert_eq!(link["state"], "failed");
    let last = of("progress").next_back().expect("at the end");
    assert_eq!(last["files_done"], 2);
    assert_eq!(last["files_failed"], 1);
    assert_eq!(last["files_remaining"], 0);
    assert_eq!(last["bytes_durable"], last["bytes_listed"]);
}

#[test]
fn quiet_says_nothing_but_errors() {
    let scene = Scene::new();
    scene.write("a", b"alpha");
    let done = scene.good(&["cp", "-q", "a", "b"]);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""));
    let done = scene.dray(&["cp", "-q", "gone", "b"]);
    assert_eq!(done.err.lines().count(), 1);
}
