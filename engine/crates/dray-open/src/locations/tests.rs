use super::{
    Folder, Registry, Sources, is_folder_by_spelling, own_path, remote, shown, stored_destination,
};
use dray_core::End;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[test]
fn a_url_says_which_bytes_it_means() {
    let path = |text: &str| remote(OsStr::new(text)).expect("good").map(|r| r.path);
    assert_eq!(path("dray://h/a/b%20c/"), Some(b"a/b c/".to_vec()));
    assert_eq!(path("dray://h"), Some(Vec::new()));
    assert_eq!(path("a/dray://h"), None);
    for (wrong, words) in [("dray://h/a%2Fb", "slash"), ("dray://h/a?b", "%3F")] {
        let error = remote(OsStr::new(wrong)).expect_err(wrong);
        assert!(error.cause.contains(words), "{error}");
    }
}

#[test]
fn a_path_that_no_line_shows_is_written_as_one_that_is_taken() {
    for (path, text) in [
        (&b"/a/b%41 c"[..], "/a/b%41 c"),
        (b"/a/\xff%\n", "file:///a/%FF%25%0A"),
    ] {
        let path = OsStr::from_bytes(path);
        assert_eq!(shown(Path::new(path)), text);
        assert_eq!(&*own_path(OsStr::new(text)).expect("good"), path);
    }
    assert!(own_path(OsStr::new("file://host/a")).is_err());
    assert!(own_path(OsStr::new("file:///a%")).is_err());
}

#[test]
fn folders_by_spelling() {
    for folder in ["a/", ".", "..", "a/.", "a/..", "/"] {
        assert!(is_folder_by_spelling(OsStr::new(folder)), "{folder}");
    }
    for file in ["a", "a/b", "...", "a/.b"] {
        assert!(!is_folder_by_spelling(OsStr::new(file)), "{file}");
    }
}

/// Returns the path of the folder at the server, and the new name of the file.
fn read(typed: &str, is_folder: bool) -> Option<(String, Option<String>)> {
    let location = Registry::default().parse(typed.as_bytes()).ok().flatten()?;
    match stored_destination(&location, is_folder).ok()? {
        (Folder::Stored(url), name) => {
            Some((url.path().to_string(), name.map(|name| name.to_string())))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_destination_is_a_folder_by_how_it_is_written() {
    let folder = |path: &str| Some((path.to_owned(), None));
    let file = |path: &str, name: &str| Some((path.to_owned(), Some(name.to_owned())));
    assert_eq!(read("root://h//d/f", false), file("d", "f"));
    assert_eq!(read("root://h//d/f?authz=x/", false), file("d", "f"));
    assert_eq!(read("root://h//d/f", true), folder("d/f"));
    assert_eq!(read("root://h//d/f/", false), folder("d/f"));
    let at_root = read("root://h//f", false).expect("good");
    assert_eq!(at_root.1.as_deref(), Some("f"));
    for refused in [
        "root://h//d/.dray-log/x",
        "root://h//d/.dray-x",
        "root://h//d/f?tpc.key=1",
        "https://h/d/f",
        "null:4KiB",
    ] {
        assert_eq!(read(refused, false), None, "{refused}");
    }
}

#[test]
fn the_text_of_a_location_in_a_transfer_id_stays_as_it_was() {
    let parse = |text: &str| {
        let parsed = Registry::default().parse(text.as_bytes());
        parsed.expect(text).expect("a store")
    };
    for (text, source, sink) in [
        (
            "root://h:1//d/f?authz=x",
            "Xrootd(XrootdSource { url: Url(root://h:1//d/f), contents: false })",
            "Xrootd(Url(root://h:1//d/f))",
        ),
        (
            "null:1KiB",
            "Null(Null { tree: NullTree { folders: 0, files_per_folder: 1, file_bytes: 1024, \
             pattern: Some(1) }, is_many: false })",
            "Null",
        ),
    ] {
        assert_eq!(parse(text).identity(End::Source), source);
        assert_eq!(parse(text).identity(End::Sink), sink);
    }
    let web = parse("http://h/d/").identity(End::Source);
    assert!(web.starts_with("Web([HttpUrl {"), "{web}");
    let both = Sources::Stored(vec![parse("http://h/a"), parse("http://h/b")]).identity();
    let url = |name| {
        format!(
            "HttpUrl {{ origin: Origin {{ is_secure: false, authority: \"h\" }}, path: RelPath({name}), \
             is_folder: false, query: None }}"
        )
    };
    assert_eq!(both, format!("Web([{}, {}])", url("a"), url("b")));
}
