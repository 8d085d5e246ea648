//! A request with a list of files.

use crate::{Check, FileWish, Place, Request};
use dray_core::{Checksum, RelPath, Required};

fn file(path: &str) -> FileWish {
    FileWish {
        path: path.to_owned(),
        size: Some(3),
        checksum: Some("adler32:0a".to_owned()),
    }
}

fn request(files: Vec<FileWish>) -> Request {
    let source = Place::at("dray://a.example/data/rse/");
    let mut request = Request::new(vec![source], Place::at("/data/rse/"));
    request.selection.recursive = true;
    request.files = files;
    request
}

#[test]
fn listed_files_become_patterns_and_requirements() {
    let asked = request(vec![file("mock/ab/x"), file("y%2Az[1]")]);
    asked.check().expect("a good request");
    assert_eq!(asked.include(), ["/mock/ab/x", "/y\\*z\\[1\\]"]);
    let wanted = Required {
        size: Some(3),
        checksum: Some(Checksum::Adler32(10)),
    };
    let path = RelPath::parse(b"mock/ab/x").expect("a path");
    assert_eq!(asked.required().get(&path), Some(&wanted));
    assert_eq!(asked.bytes_stated(), Some(6));
    assert_eq!(asked.files_min(), 2);
}

#[test]
fn contradictions_are_refused_by_name() {
    let cause = |request: &Request| request.check().expect_err("refused").cause;
    assert!(cause(&request(vec![file("x"), file("x")])).contains("files[0]"));
    assert!(cause(&request(vec![file("")])).contains("files[0].path"));
    let mut wrong = request(vec![file("x")]);
    wrong.files[0].checksum = Some("md5:1".to_owned());
    assert!(cause(&wrong).contains("files[0].checksum"));
    let mut flat = request(vec![file("x")]);
    flat.selection.recursive = false;
    assert!(cause(&flat).contains("selection.recursive"));
    let mut patterns = request(vec![file("x")]);
    patterns.selection.include = vec!["*".to_owned()];
    assert!(cause(&patterns).contains("patterns"));
    let mut one = request(vec![file("x")]);
    one.destination = Place::at("/data/rse");
    assert!(cause(&one).contains("slash"));
}
