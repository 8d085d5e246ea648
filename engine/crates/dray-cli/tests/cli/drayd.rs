//! Tests of the program under the name `drayd`, which runs an endpoint.

use crate::scene::{Done, Running, Scene};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Creates a link with this name to the program `dray`.
fn link(scene: &Scene, name: &str) -> PathBuf {
    let path = scene.path(name);
    symlink(env!("CARGO_BIN_EXE_dray"), &path).expect("make a link");
    path
}

#[test]
fn drayd_runs_the_endpoint() {
    let scene = Scene::new();
    scene.folder("data");
    let made = [
        "endpoint",
        "init",
        "etc",
        "--name",
        "localhost",
        "--root",
        "data=data",
        "--listen",
        "127.0.0.1:0",
    ];
    let key = scene.good(&made).out;
    let drayd = link(&scene, "drayd");
    let mut running = Running::begin(scene.command_as(&drayd, &["--config", "etc"]));
    let said = running.line(|line| line.starts_with("key ").then(|| line.to_owned()));
    assert_eq!(said, key.trim());
    running.line(|line| line.starts_with("listening on 127.0.0.1:").then_some(()));
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code, Some(0));
}

#[test]
fn drayd_has_the_options_of_endpoint_run_and_a_version() {
    let scene = Scene::new();
    let drayd = link(&scene, "drayd");
    let run = |arguments: &[&str]| -> Done {
        let output = scene.command_as(&drayd, arguments).output();
        output.expect("run drayd").into()
    };
    let of_dray = scene.good(&["endpoint", "run", "--help"]).out;
    assert_eq!(run(&["--help"]).out, of_dray);
    assert_eq!(run(&["--version"]).out, "dray 0.1.0\n");
    // `drayd` does not accept the commands of `dray`. A link with any other name behaves like
    // `dray`.
    assert_eq!(run(&["version"]).code, Some(2));
    let other = link(&scene, "drayd-2");
    let output = scene.command_as(&other, &["version"]).output();
    assert_eq!(Done::from(output.expect("run it")).out, "dray 0.1.0\n");
}

/// Starts an endpoint with the configuration in `etc`. Returns the process, the endpoint's address
/// and its key.
fn endpoint(scene: &Scene) -> (Running, String, String) {
    scene.folder("data").folder("other");
    let made = [
        &[
            "endpoint",
            "init",
            "etc",
            "--name",
            "localhost",
            "--listen",
            "127.0.0.1:0",
        ][..],
        &["--root", "data=data", "--root", "other=other"],
    ];
    scene.good(&made.concat());
    let mut running = scene.start(&["endpoint", "run", "--config", "etc", "--json"]);
    let (address, key) = running.line(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some((text(&line["addresses"][0])?, text(&line["fingerprint"])?))
    });
    (running, address, key)
}

#[test]
fn a_port_that_is_taken_is_told_with_who_has_it() {
    let scene = Scene::new();
    let (mut running, address, _) = endpoint(&scene);
    let second = [
        &["endpoint", "init", "second", "--name", "localhost"][..],
        &["--root", "data=data", "--listen", &address],
    ];
    scene.good(&second.concat());
    let done = scene.dray(&["endpoint", "run", "--config", "second"]);
    assert_eq!(done.code, Some(3), "{}", done.err);
    let holder = format!(
        "process {} (dray) listens on this address",
        running.child().id()
    );
    assert!(done.complaint().contains(&holder), "{}", done.err);
    // An endpoint that starts waits for an endpoint that is stopping.
    let mut third = scene.start(&["endpoint", "run", "--config", "second"]);
    running.signal(Signal::TERM);
    third.line(|line| line.starts_with("listening on").then_some(()));
    assert_eq!(running.wait().code, Some(0));
    third.signal(Signal::TERM);
    assert_eq!(third.wait().code, Some(0));
}

fn mint(scene: &Scene, scope: &str) -> Done {
    scene.dray(&[
        "token", "mint", "--dir", "etc", "--sub", "me", "--scope", scope,
    ])
}

#[test]
fn an_endpoint_without_a_path_lists_its_roots() {
    let scene = Scene::new();
    let (mut running, address, key) = endpoint(&scene);
    scene.write("token", mint(&scene, "storage.read:/").out.as_bytes());
    for url in [format!("dray://{address}"), format!("dray://{address}/")] {
        let ask = ["ls", &url, "--peer-key", &key, "--token-file", "token"];
        let shown = scene.good(&ask);
        assert_eq!(shown.out.trim(), "/data: read\n/other: read");
        let listed = scene.good(&[&ask[..], &["--json"]].concat()).json();
        assert_eq!(listed["entries"][0]["path"], "/data");
        assert_eq!(listed["entries"][1]["type"], "directory");
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code, Some(0));
}

#[test]
fn who_mints_a_token_is_not_sent_to_the_issuer() {
    let scene = Scene::new();
    let (mut running, ..) = endpoint(&scene);
    let done = mint(&scene, "storage.read:data");
    assert_eq!(done.code, Some(2));
    let complaint = done.complaint();
    assert!(
        complaint.contains("write each scope as storage.read:/PATH"),
        "{complaint}"
    );
    assert!(!complaint.contains("ask the issuer"), "{complaint}");
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn what_no_transfer_can_be_called_is_not_asked_for() {
    let scene = Scene::new();
    for command in ["show", "cancel"] {
        for id in ["../x", "batch", "..", "a b"] {
            let done = scene.dray(&[command, id, "--endpoint", "127.0.0.1:1"]);
            assert_eq!(done.code, Some(2), "{command} {id}: {}", done.err);
        }
    }
}
