use super::{
    Given, Listings, PageOf, Seen, checksum, free, list, make_folder, remove, rename, space, stat,
};
use dray_api::api_path::ApiPath;
use dray_api::{Algorithm, EntryType, SumOrigin};
use dray_config::Config;
use dray_config::roots::{Root, Roots};
use dray_core::ErrorKind;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The first page of a folder, for one owner.
const FIRST: PageOf<'static> = PageOf {
    owner: "alice",
    limit: 10,
    cursor: None,
};

struct Fixture {
    _folder: tempfile::TempDir,
    root: Arc<Root>,
    inside: PathBuf,
    outside: PathBuf,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
    fs::create_dir_all(inside.join("a/b")).expect("made");
    fs::create_dir(&outside).expect("made");
    fs::write(inside.join("a/file"), b"123456789").expect("written");
    fs::write(outside.join("secret"), b"secret").expect("written");
    symlink("../out", inside.join("link")).expect("linked");
    symlink("file", inside.join("a/inner")).expect("linked");
    let text = format!(
        "name = \"a.example\"\nstate = \"/s\"\n[[root]]\nname = \"data\"\npath = {inside:?}\n"
    );
    let roots = Roots::open(&Config::parse("test", &text).expect("good")).expect("opened");
    let root = Arc::clone(roots.find(&path("/data")).expect("there"));
    assert!(roots.find(&path("/other")).is_err());
    Fixture {
        _folder: folder,
        root,
        inside,
        outside,
    }
}

fn path(text: &str) -> ApiPath {
    ApiPath::parse(text).expect("good")
}

fn names(
    fixture: &Fixture,
    folder: &str,
    limit: u32,
    cursor: Option<&str>,
) -> (String, Option<String>) {
    names_kept(
        fixture,
        folder,
        (limit, cursor),
        "alice",
        &Listings::default(),
    )
}

fn names_kept(
    fixture: &Fixture,
    folder: &str,
    (limit, cursor): (u32, Option<&str>),
    owner: &str,
    listings: &Listings,
) -> (String, Option<String>) {
    let page = PageOf {
        owner,
        limit,
        cursor,
    };
    let (root, folder) = (&fixture.root, path(folder));
    let page = list(root, &folder, page, listings, &Given::default()).expect("listed");
    let names: Vec<_> = page.entries.into_iter().map(|entry| entry.name).collect();
    (names.join(" "), page.next)
}

#[test]
fn nothing_behind_a_link_is_seen_or_touched() {
    let fixture = fixture();
    let root = &fixture.root;
    let given = Given::default();
    for text in ["/data/link/secret", "/data/link/new"] {
        let at = path(text);
        let kinds = [
            stat(root, &at).map(drop).expect_err("stat").kind,
            checksum(root, &at, Algorithm::Adler32, &given)
                .map(drop)
                .expect_err("sum")
                .kind,
            make_folder(root, &at, true)
                .map(drop)
                .expect_err("mkdir")
                .kind,
            make_folder(root, &at, false)
                .map(drop)
                .expect_err("mkdir")
                .kind,
            remove(root, &at, true, &given)
                .map(drop)
                .expect_err("rm")
                .kind,
            rename(root, &path("/data/a/file"), &at, true)
                .map(drop)
                .expect_err("to")
                .kind,
            rename(root, &at, &path("/data/stolen"), true)
                .map(drop)
                .expect_err("from")
                .kind,
        ];
        for kind in kinds {
            assert!(
                matches!(kind, ErrorKind::PathEscapes | ErrorKind::NotADirectory),
                "{text}: {kind:?}"
            );
        }
    }
    assert!(
        list(
            root,
            &path("/data/link"),
            FIRST,
            &Listings::default(),
            &given
        )
        .is_err()
    );
    assert!(checksum(root, &path("/data/a/inner"), Algorithm::Crc32c, &given).is_err());
    let link = stat(root, &path("/data/link")).expect("the link itself");
    assert_eq!(
        (link.kind, link.link.as_deref()),
        (EntryType::Symlink, Some("../out"))
    );
    assert_eq!(
        remove(root, &path("/data/link"), true, &given).expect("the link"),
        1
    );
    assert!(fixture.outside.join("secret").exists());
}

#[test]
fn a_folder_is_listed_in_pages_by_name() {
    let fixture = fixture();
    let folder = fixture.inside.join("many");
    fs::create_dir(&folder).expect("made");
    for at in 0..25 {
        fs::write(folder.join(format!("f{at:02}")), b"x").expect("written");
    }
    fs::write(folder.join("100%"), b"x").expect("written");
    fs::write(folder.join(".dray-0123456789abcdef.part"), b"x").expect("written");
    let (first, next) = names(&fixture, "/data/many", 10, None);
    assert!(first.starts_with("100%25 f00 f01"), "{first}");
    let (_, next) = names(&fixture, "/data/many", 10, next.as_deref());
    let (last, end) = names(&fixture, "/data/many", 10, next.as_deref());
    assert_eq!(last, "f19 f20 f21 f22 f23 f24");
    assert_eq!(end, None);
    assert_eq!(names(&fixture, "/data/many", 26, None).1, None);
    assert_eq!(names(&fixture, "/data", 10, None).0, "a link many");
    let file = list(
        &fixture.root,
        &path("/data/a/file"),
        FIRST,
        &Listings::default(),
        &Given::default(),
    );
    assert_eq!(file.expect_err("a file").kind, ErrorKind::NotADirectory);
    let gone = Given::default();
    gone.up();
    let stopped = list(
        &fixture.root,
        &path("/data/many"),
        FIRST,
        &Listings::default(),
        &gone,
    );
    assert_eq!(stopped.expect_err("given up").kind, ErrorKind::Cancelled);
}

#[test]
fn a_folder_is_not_read_again_for_each_page() {
    let fixture = fixture();
    let folder = fixture.inside.join("many");
    fs::create_dir(&folder).expect("made");
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        fs::write(folder.join(name), b"").expect("written");
    }
    let minute = Duration::from_secs(60);
    let listings = Listings::new(5, minute);
    let page =
        |cursor, owner, listings| names_kept(&fixture, "/data/many", (2, cursor), owner, listings);
    let next = |text: &str| Some(text.to_owned());
    assert_eq!(page(None, "alice", &listings), ("a b".into(), next("b")));
    // The folder has changed since the first page. A page that reads the folder again shows the new
    // name. No page shows the removed name.
    fs::write(folder.join("bb"), b"").expect("written");
    fs::remove_file(folder.join("d")).expect("removed");
    let read = ("bb c".into(), next("c"));
    assert_eq!(page(Some("b"), "bob", &listings), read, "another's");
    assert_eq!(page(Some("b"), "alice", &listings), ("c".into(), next("d")));
    // Only one name is left in the cache, and the folder has more. So the folder is read again to
    // its end.
    assert_eq!(
        page(Some("d"), "alice", &listings),
        ("e f".into(), next("f"))
    );
    assert_eq!(page(Some("f"), "alice", &listings), ("g".into(), None));
    let aged = Listings::new(5, Duration::ZERO);
    assert_eq!(page(None, "alice", &aged), ("a b".into(), next("b")));
    fs::write(folder.join("ba"), b"").expect("written");
    assert_eq!(
        page(Some("b"), "alice", &aged),
        ("ba bb".into(), next("bb"))
    );
}

#[test]
fn entries_say_what_they_are() {
    let fixture = fixture();
    let file = stat(&fixture.root, &path("/data/a/file")).expect("there");
    assert_eq!((file.kind, file.size), (EntryType::File, 9));
    assert_eq!(file.path, "/data/a/file");
    assert!(file.modified_at.as_ms() > 1_600_000_000_000);
    assert_eq!(file.mode.len(), 4);
    let root = stat(&fixture.root, &path("/data")).expect("there");
    assert_eq!(
        (root.kind, root.name.as_str()),
        (EntryType::Directory, "data")
    );
    let missing = stat(&fixture.root, &path("/data/a/none")).expect_err("missing");
    assert_eq!(missing.kind, ErrorKind::NotFound);
}

#[test]
fn folders_are_made_once() {
    let fixture = fixture();
    let root = &fixture.root;
    assert!(
        make_folder(root, &path("/data/x/y/z"), true)
            .expect("made")
            .1
    );
    assert!(
        !make_folder(root, &path("/data/x/y/z"), true)
            .expect("there")
            .1
    );
    assert!(!make_folder(root, &path("/data"), false).expect("there").1);
    assert!(
        make_folder(root, &path("/data/x/w"), false)
            .expect("made")
            .1
    );
    let missing = make_folder(root, &path("/data/no/w"), false).expect_err("missing");
    assert_eq!(missing.kind, ErrorKind::NotFound);
    let file = make_folder(root, &path("/data/a/file"), true).expect_err("a file");
    assert_eq!(file.kind, ErrorKind::NotADirectory);
}

#[test]
fn removed_entries_are_counted_and_other_entries_are_kept() {
    let fixture = fixture();
    let (root, given) = (&fixture.root, Given::default());
    let deep = fixture.inside.join("deep");
    fs::create_dir_all(deep.join("1/2/3")).expect("made");
    for at in 0..300 {
        fs::write(deep.join(format!("1/f{at}")), b"x").expect("written");
    }
    fs::write(deep.join("1/.dray-0123456789abcdef.part"), b"x").expect("written");
    symlink(&fixture.outside, deep.join("1/2/out")).expect("linked");
    let error = remove(root, &path("/data/deep"), false, &given).expect_err("not empty");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    assert_eq!(
        remove(root, &path("/data/deep"), true, &given).expect("gone"),
        305
    );
    assert!(!deep.exists() && fixture.outside.join("secret").exists());
    let again = remove(root, &path("/data/deep"), true, &given).expect_err("gone");
    assert_eq!(again.kind, ErrorKind::NotFound);
    assert!(
        remove(root, &path("/data"), true, &given).is_err(),
        "the root itself"
    );
    assert_eq!(
        remove(root, &path("/data/a/file"), false, &given).expect("gone"),
        1
    );
    let mut too_deep = fixture.inside.clone();
    for _ in 0..140 {
        too_deep.push("d");
        fs::create_dir(&too_deep).expect("made");
    }
    let error = remove(root, &path("/data/d"), true, &given).expect_err("deep");
    assert_eq!(error.kind, ErrorKind::LimitExceeded);
}

#[test]
fn a_rename_replaces_only_files_and_only_when_told() {
    let fixture = fixture();
    let root = &fixture.root;
    fs::write(fixture.inside.join("other"), b"other").expect("written");
    let (file, other) = (path("/data/a/file"), path("/data/other"));
    let error = rename(root, &file, &other, false).expect_err("stands there");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    let entry = rename(root, &file, &other, true).expect("renamed");
    assert_eq!((entry.path.as_str(), entry.size), ("/data/other", 9));
    let folder = rename(root, &other, &path("/data/a/b"), true).expect_err("a folder");
    assert_eq!(folder.kind, ErrorKind::IsADirectory);
    let special = fixture.inside.join("socket");
    let _listens = std::os::unix::net::UnixListener::bind(&special).expect("bound");
    let refused = rename(root, &other, &path("/data/socket"), true).expect_err("a socket");
    assert_eq!(refused.kind, ErrorKind::AlreadyExists);
    assert!(refused.cause.contains("pipe or socket"), "{refused}");
    assert!(
        special
            .symlink_metadata()
            .is_ok_and(|state| !state.is_file())
    );
    let itself = rename(root, &path("/data/a"), &path("/data/a/b/c"), false).expect_err("itself");
    assert_eq!(itself.kind, ErrorKind::InvalidRequest);
    let missing = rename(root, &file, &path("/data/y"), false).expect_err("gone");
    assert_eq!(missing.kind, ErrorKind::NotFound);
    assert!(rename(root, &other, &path("/else/y"), false).is_err());
}

#[test]
fn a_checksum_comes_from_the_cheapest_valid_place() {
    let fixture = fixture();
    let (root, given) = (&fixture.root, Given::default());
    let file = path("/data/a/file");
    let read = checksum(root, &file, Algorithm::Adler32, &given).expect("summed");
    assert_eq!((read.checksum.as_str(), read.size), ("091e01de", 9));
    assert_eq!(read.from, SumOrigin::Read);
    let crc = checksum(root, &file, Algorithm::Crc32c, &given).expect("summed");
    assert_eq!(crc.checksum, "e3069283");
    let folder = checksum(root, &path("/data/a"), Algorithm::Adler32, &given);
    assert_eq!(folder.expect_err("a folder").kind, ErrorKind::IsADirectory);
    let nothing = space(root, &path("/data/a/none"));
    assert_eq!(
        nothing.expect_err("nothing there").kind,
        ErrorKind::NotFound
    );
    let total = space(root, &path("/data/a/file")).expect("told");
    assert!(total.total >= total.free && total.free >= total.available);
}

#[test]
fn each_entry_is_examined_immediately_before_its_removal() {
    let fixture = fixture();
    fs::create_dir(fixture.inside.join("run")).expect("made");
    for at in 0..6 {
        fs::write(fixture.inside.join(format!("run/{at}")), b"safe").expect("written");
    }
    fs::create_dir(fixture.inside.join("run/.dray-log")).expect("made");
    let freed = |is_dry: bool, change: bool| {
        let mut judged = 0;
        let mut judge = |below: &dray_core::RelPath, seen: &Seen| {
            judged += 1;
            if judged == 1 && change {
                // The other files change while the first file is checked.
                for at in 0..6 {
                    let path = fixture.inside.join(format!("run/{at}"));
                    if !path.ends_with(below.to_string()) {
                        fs::write(path, b"changed").expect("written");
                    }
                }
            }
            Ok((seen.size != 4).then(|| "changed".to_owned()))
        };
        let given = Given::default();
        free(
            &fixture.root,
            &path("/data/run"),
            &given,
            is_dry,
            &mut judge,
        )
        .expect("looked at")
    };
    let dry = freed(true, false);
    assert_eq!((dry.removed, dry.kept), (6, 1), "{dry:?}");
    assert_eq!(
        fs::read_dir(fixture.inside.join("run"))
            .expect("there")
            .count(),
        7
    );
    let real = freed(false, true);
    assert_eq!((real.removed, real.kept, real.named.len()), (1, 6, 5));
    assert_eq!(
        fs::read_dir(fixture.inside.join("run"))
            .expect("there")
            .count(),
        6
    );
    fs::remove_dir(fixture.inside.join("run/.dray-log")).expect("removed");
    for at in 0..6 {
        fs::write(fixture.inside.join(format!("run/{at}")), b"safe").expect("written");
    }
    let rest = freed(false, false);
    assert_eq!((rest.removed, rest.kept), (7, 0), "the folder too");
    assert!(!fixture.inside.join("run").exists());
    // A link is removed itself. Its target stays.
    let mut judge = |_: &dray_core::RelPath, _: &Seen| Ok(None);
    let link = free(
        &fixture.root,
        &path("/data/link"),
        &Given::default(),
        false,
        &mut judge,
    );
    assert_eq!(link.expect("the link").removed, 1);
    assert!(fixture.outside.join("secret").exists());
}
