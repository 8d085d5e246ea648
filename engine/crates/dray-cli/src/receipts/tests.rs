use super::{files, keys, receipt};
use crate::exit::Exit;
use dray_core::ErrorKind;
use dray_core::checksum::Summer;
use dray_receipt::{
    ByteCounts, EndpointPart, FileCounts, Head, ListDigest, ObjectCounts, PlanPart, RECEIPT_TYPE,
    SigningKey, TransferPart, sign,
};
use ring::rand::SystemRandom;
use serde_json::json;
use std::fs;
use std::path::PathBuf;

/// A folder with a signed receipt and a destination.
struct Bed {
    folder: tempfile::TempDir,
    key: SigningKey,
}

fn head(files: FileCounts) -> Head {
    let time = || "2026-01-01T00:00:00.000Z".to_owned();
    Head {
        sequence: 1,
        previous: None,
        issued_at: time(),
        endpoint: EndpointPart {
            name: "a.example".to_owned(),
            version: "0.1.0".to_owned(),
        },
        transfer: TransferPart {
            id: "one".to_owned(),
            attempt: 1,
            tries: 1,
            state: "done".to_owned(),
            owner: "alice".to_owned(),
            sources: Vec::new(),
            sources_count: 0,
            destination: "/data/b".to_owned(),
            durability: "file".to_owned(),
            submitted_at: time(),
            started_at: None,
            ended_at: None,
        },
        plan: PlanPart::default(),
        files,
        bytes: ByteCounts::default(),
        objects: ObjectCounts::default(),
        breaks: Vec::new(),
        error: None,
        notices: Vec::new(),
        list: dray_receipt::ListPart::default(),
    }
}

/// Returns a line of the list for a file with the content `a`.
fn line(path: &str, state: &str) -> String {
    let mut summer = Summer::new();
    summer.update(b"a");
    let crc32c = format!("{:08x}", summer.finish().crc32c);
    json!({"path": path, "state": state, "size": 1, "crc32c": crc32c}).to_string() + "\n"
}

impl Bed {
    fn new() -> Self {
        let (key, _) = SigningKey::generate(&SystemRandom::new()).expect("a key");
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("to")).expect("made");
        let bed = Self { folder, key };
        fs::write(bed.path("keys.json"), bed.key.public().jwk().to_string()).expect("written");
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Signs a list whose head counts `done` complete files, of which `adopted` existed before.
    fn sign(&self, done: u64, adopted: u64, lines: &[String]) {
        let mut list = ListDigest::default();
        lines.iter().for_each(|line| list.add(line.as_bytes()));
        let mut head = head(FileCounts {
            listed: done,
            done,
            adopted,
            ..FileCounts::default()
        });
        head.list = list.finish();
        let text = sign(&self.key, RECEIPT_TYPE, &head).expect("signed") + "\n" + &lines.concat();
        fs::write(self.path("receipt"), text).expect("written");
    }

    fn make(&self, names: &[&str]) {
        for name in names {
            fs::write(self.path("to").join(name), "a").expect("written");
        }
    }

    /// Verifies the receipt and the files. Returns the number of compared files.
    fn compare(&self) -> Result<u64, crate::exit::Stop> {
        let keys = keys(&self.path("keys.json")).expect("keys");
        let verified = receipt(&self.path("receipt"), &keys).expect("a signed receipt");
        let place = self.path("to");
        let compared = files::compare(&self.path("receipt"), &verified.head, &place)?;
        Ok(compared.compared)
    }

    fn cause(&self) -> String {
        let stop = self.compare().expect_err("refused");
        assert!(matches!(stop.exit, Exit::SomeFailed));
        assert_eq!(stop.error.kind, ErrorKind::ChecksumMismatch);
        stop.error.cause.to_string()
    }
}

#[test]
fn a_list_with_fewer_files_than_the_head_counts_is_refused() {
    let bed = Bed::new();
    bed.make(&["a", "b"]);
    let lines = [line("a", "done"), line("b", "done")];
    bed.sign(3, 0, &lines);
    assert!(
        bed.cause().contains("wrote 3 complete files"),
        "{}",
        bed.cause()
    );
    bed.sign(2, 0, &lines);
    assert_eq!(bed.compare().expect("complete"), 2);
    // Files that existed before have no lines.
    bed.sign(5, 3, &lines);
    assert_eq!(bed.compare().expect("complete"), 2);
    // A killed process stored the lines, but not its counters.
    bed.sign(0, 0, &lines);
    assert_eq!(bed.compare().expect("complete"), 2);
}

#[test]
fn several_lines_of_a_path_count_once_and_the_last_one_decides() {
    let bed = Bed::new();
    bed.make(&["a"]);
    // Two texts of the same path.
    bed.sign(2, 0, &[line("a", "done"), line("%61", "done")]);
    assert!(
        bed.cause().contains("the list of files has only 1"),
        "{}",
        bed.cause()
    );
    bed.sign(
        1,
        0,
        &[line("b", "failed"), line("a", "failed"), line("a", "done")],
    );
    assert_eq!(bed.compare().expect("the last line"), 1);
    // A later session found that the file is lost, and could not write it again.
    bed.sign(1, 0, &[line("b", "done"), line("b", "failed")]);
    assert_eq!(bed.compare().expect("nothing to compare"), 0);
    bed.sign(1, 0, &[line("b", "failed"), line("b", "done")]);
    assert!(bed.cause().contains("is missing"), "{}", bed.cause());
}

#[test]
fn a_list_that_changes_after_its_verification_is_refused() {
    let bed = Bed::new();
    bed.make(&["a", "b"]);
    let lines = [line("a", "done"), line("b", "done")];
    bed.sign(2, 0, &lines);
    let keys = keys(&bed.path("keys.json")).expect("keys");
    let verified = receipt(&bed.path("receipt"), &keys).expect("a signed receipt");
    let text = fs::read_to_string(bed.path("receipt")).expect("read");
    let signed = text.lines().next().expect("a head");
    let changed = format!("{signed}\n{}{}", lines[1], lines[0]);
    fs::write(bed.path("receipt"), changed).expect("written");
    let compared = files::compare(&bed.path("receipt"), &verified.head, &bed.path("to"));
    let stop = compared.expect_err("refused");
    assert!(
        stop.error.cause.contains("another content"),
        "{}",
        stop.error
    );
}
