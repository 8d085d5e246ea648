//! Tests of the meaning of SRC and DST. docs/reference/cli.md has the same table.

use crate::scene::Scene;

fn scene() -> Scene {
    let scene = Scene::new();
    scene
        .write("a", b"alpha")
        .write("c", b"gamma")
        .write("d/x", b"ex")
        .write("d/e/y", b"why");
    scene
}

#[test]
fn the_table_of_meanings() {
    let table: &[(&[&str], &[&str])] = &[
        (&["a", "b"], &["b"]),
        (&["a", "b/"], &["b/a"]),
        (&["a", "b/."], &["b/a"]),
        (&["-r", "d", "b"], &["b/d/x", "b/d/e/y"]),
        (&["-r", "d", "b/"], &["b/d/x", "b/d/e/y"]),
        (&["-r", "d/", "b"], &["b/x", "b/e/y"]),
        (&["-r", "d/.", "b"], &["b/d/x", "b/d/e/y"]),
        (&["-r", "d/e/..", "b"], &["b/d/x", "b/d/e/y"]),
        (&["-r", "a", "b"], &["b/a"]),
        (&["a", "c", "b"], &["b/a", "b/c"]),
        (&["-r", "a", "d", "b"], &["b/a", "b/d/x", "b/d/e/y"]),
        (&["a", "deep/er/b"], &["deep/er/b"]),
        (&["-r", "d", "deep/er/b"], &["deep/er/b/d/x"]),
    ];
    for (arguments, files) in table {
        // The result is the same if the destination exists, and after a second run.
        for is_there in [false, true] {
            let scene = scene();
            let is_folder = files.iter().all(|file| file.starts_with("b/"));
            if is_there && is_folder {
                scene.folder("b");
            }
            for _ in 0..2 {
                // Durability is off, because the test is then much faster.
                scene.good(&[&["cp", "--durability", "none"], *arguments].concat());
                for file in *files {
                    assert!(scene.path(file).is_file(), "{arguments:?}: no {file}");
                }
            }
            let b = scene.path("b");
            if b.is_dir() {
                let own = scene
                    .tree("b")
                    .keys()
                    .filter(|path| b.join(path).is_file())
                    .count();
                assert_eq!(own, files.len(), "{arguments:?}: {:?}", scene.tree("b"));
                assert!(scene.is_clean("b"));
            }
        }
    }
}

#[test]
fn the_folder_one_is_in_has_a_name() {
    let scene = scene();
    let inside = scene.path("d");
    let run = |arguments: &[&str]| {
        let mut command = scene.command(arguments);
        command.current_dir(&inside).output().expect("run dray")
    };
    assert!(run(&["cp", "-r", ".", "../b"]).status.success());
    assert_eq!(scene.read("b/d/e/y"), b"why");
    assert!(run(&["cp", "../a", "."]).status.success());
    assert_eq!(scene.read("d/a"), b"alpha");
}

#[test]
fn a_link_that_is_named_is_where_it_leads_under_its_own_name() {
    let scene = scene();
    std::os::unix::fs::symlink("d", scene.path("link")).expect("make a link");
    scene.good(&["cp", "-r", "link", "b"]);
    assert!(!scene.path("b/link").is_symlink());
    assert_eq!(scene.read("b/link/e/y"), b"why");
    scene.good(&["cp", "-r", "link/", "c2"]);
    assert_eq!(scene.read("c2/e/y"), b"why");
    scene.good(&["cp", "-r", "--links", "follow", "link", "f"]);
    assert_eq!(scene.read("f/link/e/y"), b"why");
}

#[test]
fn a_folder_whose_name_looks_like_a_scheme_is_written_as_a_path() {
    let scene = scene();
    scene.good(&["cp", "a", "./s3://bucket/a"]);
    assert_eq!(scene.read("s3:/bucket/a"), b"alpha");
}

#[test]
fn a_link_has_the_bytes_of_what_it_leads_to() {
    let scene = scene();
    std::os::unix::fs::symlink("a", scene.path("link")).expect("make a link");
    let done = scene.dray(&["cp", "--checksum", "adler32:00000000", "link", "b"]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(done.err.contains("checksum mismatch"), "{}", done.err);
    assert!(scene.path("b").symlink_metadata().is_err());
    let done = scene.dray(&["cp", "--links", "refuse", "link", "b"]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err.contains("the request refuses links"),
        "{}",
        done.err
    );
    scene.good(&["cp", "--range", "0:2", "link", "b"]);
    assert_eq!(scene.read("b"), b"al");
}

#[test]
fn what_makes_no_sense_is_a_usage_error_and_changes_nothing() {
    let scene = scene();
    scene.folder("other").write("other/a", b"another");
    let before = scene.tree("");
    let table: &[(&[&str], &str)] = &[
        (&["d", "b"], "is a folder"),
        (&["d/", "b"], "is a folder"),
        (&["a", "other/a", "b"], "would replace each other"),
        (&["-r", "d", "d"], "is inside d"),
        (&["-r", "d", "d/e"], "is inside d"),
        (&["-r", "d/", "d/e/new"], "is inside d/"),
        (&["a", "a"], "are the same"),
        (&["a", "."], "are the same"),
        (&["-r", "--range", "0:1", "a", "b"], "need a single file"),
        (
            &["--checksum", "adler32:1", "a", "c", "b"],
            "need a single file",
        ),
        (&["a", "dray://h/x", "b"], "some sources are on this host"),
        (&["dray://h/a", "dray://i/b", "b"], "two hosts"),
        (&["dray://h/a", "dray://i/b", "dray://j/c"], "two hosts"),
        (&["dray://h/a%2Fb", "b"], "slash"),
        (&["a", "b", "--replica", "dray://h/a"], "--replica"),
        (&["-r", "dray://h", "dray://i/b"], "ROOT/PATH"),
        (&["a", ".dray-b"], "are reserved"),
        (&["--include", "[", "a", "b"], "\"[\""),
        (&["a", ""], "DST is empty"),
        (&["", "b"], "SRC arguments is empty"),
        (&["a", "dray://h:x/b"], "port"),
        (&["a", "dray://h/b"], "--token-file"),
        (&["--target", "nothing", "a", "b"], "DIR=NAME"),
        (&["a", "s3://bucket/a"], "does not support the scheme s3://"),
        (&["file://h/a", "b"], "the file: URL contains a host name"),
        (&["--detach", "a", "b"], "--detach"),
    ];
    for (arguments, words) in table {
        let done = scene.dray(&[&["cp"], *arguments].concat());
        assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.err);
        let complaint = done.complaint();
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
        assert_eq!(scene.tree(""), before, "{arguments:?} changed something");
    }
    for arguments in [
        &["cp"][..],
        &["cp", "a"],
        &["cp", "--rate", "0", "a", "b"],
        &["nonsense"],
    ] {
        assert_eq!(scene.dray(arguments).code, Some(2), "{arguments:?}");
    }
}
