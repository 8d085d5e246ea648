//! The program under the name `drayd`: it runs the endpoint.

use crate::scene::{Done, Running, Scene};
use rustix::process::Signal;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A link of this name to the program.
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
    // Words of dray are no words of drayd, and no other name makes a drayd of dray.
    assert_eq!(run(&["version"]).code, Some(2));
    let other = link(&scene, "drayd-2");
    let output = scene.command_as(&other, &["version"]).output();
    assert_eq!(Done::from(output.expect("run it")).out, "dray 0.1.0\n");
}
