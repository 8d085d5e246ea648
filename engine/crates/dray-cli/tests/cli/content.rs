//! Copied entries: names, kinds, attributes, holes.

use crate::scene::{Scene, noise, odd};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

#[test]
fn a_tree_of_everything() {
    let scene = Scene::new();
    scene
        .write("d/empty", b"")
        .write("d/one", b"1")
        .write("d/large", &noise(3_500_000, 7))
        .write("d/exact", &noise(1 << 20, 9))
        .folder("d/hollow")
        .folder("d/deep/er/est")
        .write("d/sp ace\nline", b"x")
        .write(scene.path("d").join(odd(b"n\xff\xfe")), b"bytes")
        .write(scene.path("d").join("n".repeat(255)), b"long");
    let deep = (0..40)
        .map(|_| "x".repeat(100))
        .collect::<Vec<_>>()
        .join("/");
    scene.write(format!("d/{deep}/leaf"), b"far down");
    for (text, name) in [("one", "good"), ("nowhere", "dangling"), ("/etc", "away")] {
        std::os::unix::fs::symlink(text, scene.path("d").join(name)).expect("make a link");
    }
    let modes = [("d/one", 0o400), ("d/large", 0o751), ("d/hollow", 0o700)];
    for (name, mode) in modes {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(scene.path(name), mode).expect("set the mode");
    }
    let old = SystemTime::UNIX_EPOCH + Duration::new(981_173_106, 123_456_789);
    let file = File::options()
        .read(true)
        .open(scene.path("d/one"))
        .expect("open");
    file.set_modified(old).expect("set the time");

    scene.good(&["cp", "-r", "d", "t"]);
    assert_eq!(scene.tree("t/d"), scene.tree("d"));
    assert!(scene.is_clean("t"));
    let state = scene.path("t/d/one").metadata().expect("there");
    assert_eq!(
        (state.mtime(), state.mtime_nsec()),
        (981_173_106, 123_456_789)
    );

    // A second copy sends nothing.
    let report = scene.good(&["cp", "-r", "d", "t", "--json"]).json();
    assert_eq!(report["bytes_sent"], 0);
    assert_eq!(report["files_adopted"], report["files"]);
}

#[test]
fn holes_stay_holes_and_are_not_sent() {
    let scene = Scene::new();
    let file = File::create(scene.path("sparse")).expect("make it");
    file.set_len(1 << 30).expect("make it long");
    file.write_all_at(&noise(8192, 3), 300 << 20)
        .expect("write in the middle");
    file.write_all_at(b"end", (1 << 30) - 3)
        .expect("write at the end");
    drop(file);
    let report = scene.good(&["cp", "sparse", "copy", "--json"]).json();
    let copy = scene.path("copy").metadata().expect("there");
    assert_eq!(copy.len(), 1 << 30);
    assert!(copy.blocks() * 512 < 4 << 20, "{} blocks", copy.blocks());
    let sent = report["bytes_sent"].as_u64().expect("a number");
    assert!(sent < 4 << 20, "{sent} bytes sent");
    let copy = File::open(scene.path("copy")).expect("open");
    let mut middle = vec![0; 8192];
    copy.read_exact_at(&mut middle, 300 << 20).expect("read");
    assert_eq!(middle, noise(8192, 3));
    let mut end = [0; 3];
    copy.read_exact_at(&mut end, (1 << 30) - 3).expect("read");
    assert_eq!(&end, b"end");
}

#[test]
fn links_kept_followed_refused() {
    let scene = Scene::new();
    scene.write("d/a", b"alpha").write("else/x", b"ex");
    std::os::unix::fs::symlink("../else", scene.path("d/l")).expect("make a link");
    scene.good(&["cp", "-r", "d", "keep"]);
    assert!(scene.path("keep/d/l").is_symlink());
    scene.good(&["cp", "-r", "--links", "follow", "d", "follow"]);
    assert!(!scene.path("follow/d/l").is_symlink());
    assert_eq!(scene.read("follow/d/l/x"), b"ex");
    let done = scene.dray(&["cp", "-r", "--links", "refuse", "d", "refuse"]);
    assert_eq!(done.code, Some(1));
    assert!(done.complaint().contains("d/l"), "{}", done.err);
    assert_eq!(scene.read("refuse/d/a"), b"alpha");
}

#[test]
fn include_and_exclude() {
    let scene = Scene::new();
    for name in [
        "a.root",
        "a.txt",
        "tmp/b.root",
        "run/c.root",
        "run/old/d.root",
    ] {
        scene.write(format!("d/{name}"), b"x");
    }
    scene.good(&[
        "cp",
        "-r",
        "d/",
        "t",
        "--include",
        "*.root",
        "--exclude",
        "tmp",
        "--exclude",
        "run/old/*",
    ]);
    let names = scene
        .tree("t")
        .into_keys()
        .filter(|path| scene.path("t").join(path).is_file());
    let names: Vec<_> = names.map(|path| path.display().to_string()).collect();
    assert_eq!(names, ["a.root", "run/c.root"]);
}

#[test]
fn a_range_of_a_file() {
    let scene = Scene::new();
    let bytes = noise(3 << 20, 5);
    scene.write("a", &bytes);
    scene.good(&["cp", "--range", "1000:2MiB", "a", "part"]);
    assert_eq!(scene.read("part"), &bytes[1000..1000 + (2 << 20)]);
    // Another range of the same length is other content, although size and time match.
    scene.good(&[
        "cp",
        "--overwrite",
        "always",
        "--range",
        "5:2MiB",
        "a",
        "part",
    ]);
    assert_eq!(scene.read("part"), &bytes[5..5 + (2 << 20)]);
    let done = scene.dray(&["cp", "--range", "3MiB:1", "a", "past"]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.complaint().contains("--range inside the file"),
        "{}",
        done.err
    );
    assert!(!scene.exists("past"));
}

#[test]
fn a_demanded_checksum() {
    let scene = Scene::new();
    scene.write("a", b"123456789");
    for sum in ["adler32:091e01de", "crc32c:E3069283"] {
        scene.good(&["cp", "--checksum", sum, "a", "good"]);
        assert_eq!(scene.read("good"), b"123456789");
    }
    let done = scene.dray(&["cp", "--checksum", "adler32:091e01df", "a", "bad", "--json"]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    let failure = &done.json()["files_failed"][0];
    assert_eq!(failure["kind"], "checksum_mismatch");
    let complaint = done.complaint();
    for words in ["adler32:091e01de", "adler32:091e01df", "bad"] {
        assert!(complaint.contains(words), "{words} in {complaint}");
    }
    assert!(!scene.exists("bad"));
    assert!(scene.is_clean(""));
    // With a wrong checksum, the existing file is neither changed nor adopted.
    scene.write("other", b"123456788");
    let wrong = &["cp", "--checksum", "adler32:091e01df", "a", "other"];
    assert_eq!(scene.dray(wrong).code, Some(1));
    assert_eq!(scene.read("other"), b"123456788");
}
