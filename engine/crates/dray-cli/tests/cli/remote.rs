//! Tests with two processes: `dray serve` and `dray cp`.

use crate::scene::{Done, Running, Scene, noise, until};
use rustix::process::Signal;
use serde_json::Value;

struct TestServer {
    serving: Running,
    key: String,
    address: String,
}

impl TestServer {
    fn open(scene: &Scene, more: &[&str]) -> Self {
        scene.folder("served").write("token", b"a secret\n");
        let arguments = [
            &[
                "serve",
                "--root",
                "served",
                "--token-file",
                "token",
                "--identity",
                "id",
                "--json",
            ][..],
            &["--listen", "127.0.0.1:0"],
            more,
        ];
        let mut serving = scene.start(&arguments.concat());
        let (key, address) = serving.line(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let text = |value: &Value| value.as_str().map(str::to_owned);
            Some((text(&line["fingerprint"])?, text(&line["addresses"][0])?))
        });
        Self {
            serving,
            key,
            address,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("dray://{}/{path}", self.address)
    }

    fn with<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        let more = ["--peer-key", &self.key, "--token-file", "token", "--json"];
        [&["cp"], arguments, &more].concat()
    }

    fn cp(&self, scene: &Scene, arguments: &[&str]) -> Done {
        scene.dray(&self.with(arguments))
    }

    fn good(&self, scene: &Scene, arguments: &[&str]) -> Done {
        let done = self.cp(scene, arguments);
        assert_eq!(
            done.code,
            Some(0),
            "{arguments:?}: {}{}",
            done.out,
            done.err
        );
        done
    }
}

fn scene() -> Scene {
    let scene = Scene::new();
    scene
        .write("d/large", &noise(5_000_000, 1))
        .write("d/small", b"small")
        .write("d/e/empty", b"")
        .folder("d/hollow");
    std::os::unix::fs::symlink("small", scene.path("d/link")).expect("make a link");
    scene
}

#[test]
fn push_and_pull() {
    let scene = scene();
    let server = TestServer::open(&scene, &["--allow-clear-data"]);
    for (number, more) in [
        &[][..],
        &["--streams", "1"],
        &["--streams", "8", "--object-size", "64KiB"],
        &["--clear-data"],
    ]
    .iter()
    .enumerate()
    {
        let (folder, back) = (format!("in{number}"), format!("back{number}"));
        let to = server.url(&folder);
        let report = server
            .good(&scene, &[&["-r", "d", &to], *more].concat())
            .json();
        assert_eq!(
            (&report["files"], &report["bytes"]),
            (&3.into(), &5_000_005.into())
        );
        assert_eq!(
            scene.tree(format!("served/{folder}/d")),
            scene.tree("d"),
            "{more:?}"
        );
        let from = server.url(&format!("{folder}/d"));
        let report = server
            .good(&scene, &[&["-r", &from, &back], *more].concat())
            .json();
        assert_eq!(
            (&report["files"], &report["bytes"]),
            (&3.into(), &5_000_005.into())
        );
        assert_eq!(report["bytes_sent"], 5_000_005);
        assert_eq!(scene.tree(format!("{back}/d")), scene.tree("d"), "{more:?}");
    }
    assert!(scene.is_clean("served"));
}

#[test]
fn meanings_are_the_same_far_away() {
    let scene = scene();
    let server = TestServer::open(&scene, &[]);
    server.good(&scene, &["d/small", &server.url("x/name")]);
    assert_eq!(scene.read("served/x/name"), b"small");
    server.good(&scene, &["d/small", &server.url("x/")]);
    assert_eq!(scene.read("served/x/small"), b"small");
    server.good(&scene, &["d/small", &server.url("")]);
    assert_eq!(scene.read("served/small"), b"small");
    server.good(&scene, &["-r", "d/", &server.url("y")]);
    assert_eq!(scene.tree("served/y"), scene.tree("d"));
    server.good(&scene, &[&server.url("x/name"), "renamed"]);
    assert_eq!(scene.read("renamed"), b"small");
    server.good(&scene, &["-r", &server.url("y/"), "z"]);
    assert_eq!(scene.tree("z"), scene.tree("d"));
    let (one, two) = (server.url("x/name"), server.url("x/small"));
    server.good(&scene, &[&one, &two, "both"]);
    assert_eq!(scene.read("both/name"), scene.read("both/small"));
    // Ranges and expected checksums also work with a remote host.
    server.good(
        &scene,
        &["--range", "1000:2000", "d/large", &server.url("part")],
    );
    assert_eq!(
        scene.read("served/part"),
        &scene.read("d/large")[1000..3000]
    );
    let done = server.cp(
        &scene,
        &["--checksum", "adler32:1", "d/small", &server.url("bad")],
    );
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(!scene.exists("served/bad") && scene.is_clean("served"));
}

#[test]
fn nobody_without_key_and_token() {
    let scene = scene();
    let server = TestServer::open(&scene, &[]);
    scene.write("wrong", b"not the secret");
    let to = server.url("a");
    let key = format!("sha256:{}", "ab".repeat(32));
    let calls = [
        ["--peer-key", &key, "--token-file", "token"],
        ["--peer-key", &server.key, "--token-file", "wrong"],
    ];
    for call in calls {
        let done = scene.dray(&[&["cp", "d/small", &to, "--json"][..], &call].concat());
        assert_eq!(done.code, Some(3), "{}", done.err);
        assert_eq!(done.json()["error"]["kind"], "unauthorized");
    }
    assert!(!scene.exists("served/a"));
    // Options may come from the environment instead of the command line.
    let mut command = scene.command(&["cp", "d/small", &to]);
    command
        .env("DRAY_PEER_KEY", &server.key)
        .env("DRAY_TOKEN", "a secret");
    assert!(command.output().expect("run dray").status.success());
    let done = server.cp(&scene, &["d/small", &server.url("clear"), "--clear-data"]);
    assert_eq!(
        done.code,
        Some(3),
        "clear data was not allowed: {}",
        done.err
    );
}

#[test]
fn nothing_leaves_the_root() {
    let scene = scene();
    scene.write("outside/secret", b"secret").folder("served/in");
    std::os::unix::fs::symlink("../outside", scene.path("served/way")).expect("make a link");
    std::os::unix::fs::symlink("../../outside", scene.path("served/in/way")).expect("make a link");
    let server = TestServer::open(&scene, &[]);
    for path in [
        "../outside/x",
        "/outside/x",
        "in/../../outside/x",
        "way/x",
        "in/way/x",
    ] {
        let done = server.cp(&scene, &["d/small", &server.url(path)]);
        assert_eq!(done.code, Some(3), "{path}: {}", done.err);
        let done = server.cp(&scene, &["-r", "d", &server.url(path)]);
        assert_eq!(done.code, Some(3), "{path}: {}", done.err);
    }
    for path in [
        "../outside/secret",
        "/outside/secret",
        "way/secret",
        "in/way/secret",
    ] {
        let done = server.cp(&scene, &[&server.url(path), "got"]);
        assert!(matches!(done.code, Some(1 | 3)), "{path}: {}", done.err);
        assert!(!scene.exists("got"), "{path}");
        let done = server.cp(&scene, &["--links", "follow", &server.url(path), "got"]);
        assert!(matches!(done.code, Some(1 | 3)), "{path}: {}", done.err);
        assert!(!scene.exists("got"), "{path}");
    }
    assert_eq!(scene.tree("outside").len(), 1);
}

#[test]
fn one_way_only() {
    let scene = scene();
    scene.write("served/a", b"alpha");
    let server = TestServer::open(&scene, &["--read-only"]);
    let done = server.cp(&scene, &["d/small", &server.url("b")]);
    assert_eq!(done.code, Some(3));
    assert_eq!(done.json()["error"]["kind"], "read_only");
    server.good(&scene, &[&server.url("a"), "a"]);
    drop(server);
    let server = TestServer::open(&scene, &["--write-only"]);
    server.good(&scene, &["d/small", &server.url("b")]);
    assert_eq!(
        server.cp(&scene, &[&server.url("a"), "again"]).code,
        Some(3)
    );
    assert!(!scene.exists("again"));
}

#[test]
fn a_killed_server_is_found_again() {
    let scene = scene();
    scene.write("d/large", &noise(12 << 20, 4));
    for is_push in [true, false] {
        let mut server = TestServer::open(&scene, &[]);
        let port = server.address.clone();
        let (folder, there) = (
            format!("in-{is_push}"),
            server.url(&format!("in-{is_push}")),
        );
        let from = server.url("out/d");
        let arguments = match is_push {
            true => vec!["-r", "d", &there, "--rate", "3MiB"],
            false => {
                server.good(&scene, &["-r", "d", &server.url("out")]);
                vec!["-r", &from, &folder, "--rate", "3MiB"]
            }
        };
        let top = if is_push {
            format!("served/{folder}")
        } else {
            folder.clone()
        };
        let running = scene.start(&server.with(&arguments));
        until("something safe", || {
            let shown = scene.dray(&["log", "show", &top, "--json"]);
            shown.code == Some(0) && shown.out.contains("\"offset\":")
        });
        server.serving.child().kill().expect("kill the server");
        drop(server);
        let server = reopen(&scene, &port);
        let done = running.wait();
        assert_eq!(done.code, Some(0), "{is_push}: {}", done.err);
        assert_eq!(scene.tree(format!("{top}/d")), scene.tree("d"));
        let report = done.json();
        let sent = report["bytes_sent"].as_u64().expect("a number");
        // At most 6 MiB are sent twice: the objects of an unfinished sync group, and the data in
        // flight.
        assert!(sent < (12 << 20) + (6 << 20), "{report}");
        assert!(!report["notices"].as_array().expect("a list").is_empty());
        drop(server);
    }
}

fn reopen(scene: &Scene, address: &str) -> Running {
    let arguments = [
        &[
            "serve",
            "--root",
            "served",
            "--token-file",
            "token",
            "--identity",
            "id",
        ][..],
        &["--listen", address],
    ];
    let mut serving = scene.start(&arguments.concat());
    serving.line(|line| line.starts_with("listening").then_some(()));
    serving
}

#[test]
fn a_stopped_server_ends_in_peace_and_the_client_can_go_on() {
    let scene = scene();
    scene.write("d/large", &noise(6 << 20, 4));
    let mut server = TestServer::open(&scene, &[]);
    let to = server.url("in");
    let arguments = ["-r", "d", &to, "--rate", "2MiB", "--retries", "0"];
    let running = scene.start(&server.with(&arguments));
    until("the partial file", || {
        scene.exists("served/in/d") && !scene.is_clean("served/in/d")
    });
    server.serving.signal(Signal::TERM);
    let done = running.wait();
    assert_eq!(done.code, Some(5), "{}{}", done.out, done.err);
    assert!(!scene.exists("served/in/d/large"));
    let status = server.serving.child().wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    let server = TestServer::open(&scene, &[]);
    server.good(&scene, &["-r", "d", &server.url("in")]);
    assert_eq!(scene.tree("served/in/d"), scene.tree("d"));
    assert!(scene.is_clean("served"));
}

#[test]
fn a_client_that_is_stopped_goes_on() {
    let scene = scene();
    scene.write("d/large", &noise(8 << 20, 4));
    let server = TestServer::open(&scene, &[]);
    server.good(&scene, &["-r", "d", &server.url("out")]);
    let (to, from) = (server.url("in"), server.url("out/d"));
    for (arguments, top) in [
        (["-r", "d", &to], "served/in"),
        (["-r", &from, "back"], "back"),
    ] {
        let slow = [&arguments[..], &["--rate", "3MiB"]].concat();
        let mut running = scene.start(&server.with(&slow));
        until("something safe", || {
            let shown = scene.dray(&["log", "show", top, "--json"]);
            shown.code == Some(0) && shown.out.contains("\"offset\":")
        });
        running.signal(Signal::INT);
        let done = running.wait();
        assert_eq!(done.code, Some(5), "{}", done.err);
        assert_eq!(done.json()["state"], "cancelled");
        let report = server.good(&scene, &arguments).json();
        assert!(
            report["bytes_resumed"].as_u64().expect("a number") > 0,
            "{report}"
        );
        assert_eq!(scene.tree(format!("{top}/d")), scene.tree("d"));
    }
    assert!(scene.is_clean("served") && scene.is_clean("back"));
}

#[test]
fn a_client_hears_why_the_server_broke_off() {
    let scene = scene();
    scene.write("d/large", &noise(8 << 20, 4));
    let server = TestServer::open(&scene, &[]);
    let to = server.url("in");
    let running = scene.start(&server.with(&["-r", "d", &to, "--rate", "2MiB"]));
    until("the partial file", || {
        scene.exists("served/in/d") && !scene.is_clean("served/in/d")
    });
    for entry in std::fs::read_dir(scene.path("served/in/.dray-log")).expect("a log") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|name| name == "lease") {
            // Overwrite the lease, as another host would if it took over the destination without
            // working file locks.
            std::fs::write(path, vec![0; 2048]).expect("written");
        }
    }
    let done = running.wait();
    assert_eq!(done.code, Some(3), "{}{}", done.out, done.err);
    let report = done.json();
    let told = report["error"].to_string();
    assert!(told.contains("removed the lease"), "{told}");
    assert!(done.err.contains("removed the lease"), "{}", done.err);
    assert!(done.err.contains("destination"), "{}", done.err);
}

#[test]
fn an_address_of_another_host_is_no_place_to_connect_from() {
    let scene = scene();
    let server = TestServer::open(&scene, &[]);
    let to = server.url("in");
    // The address is reserved for documentation (RFC 5737), so no host has it.
    let done = server.cp(&scene, &["d/small", &to, "--bind", "192.0.2.1"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(
        done.err
            .contains("--bind 192.0.2.1 is not an address of this host"),
        "{}",
        done.err
    );
    server.good(&scene, &["d/small", &to, "--bind", "127.0.0.1"]);
}
