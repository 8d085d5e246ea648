//! Lists of files are divided into pages, are complete, and never contain files of another
//! transfer.

use super::{actor, begin, by, id, open, queue, request};
use crate::queue::{Ending, Queue};
use dray_api::{FileOutcome, FileState, FilesQuery};

pub(super) fn outcome(path: &str) -> FileOutcome {
    FileOutcome {
        path: path.to_owned(),
        state: if path.starts_with('x') {
            FileState::Failed
        } else {
            FileState::Done
        },
        size: Some(3),
        adler32: None,
        crc32c: None,
        error: None,
    }
}

#[test]
fn files_are_paged_and_a_torn_line_hides_no_other() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("..x"))).expect("taken");
    let page = |state, limit, cursor: Option<String>| {
        let query = FilesQuery {
            state,
            limit,
            cursor,
        };
        let page = queue.files(&alice, "..x", &query).expect("listed");
        let paths: Vec<_> = page.files.iter().map(|file| file.path.clone()).collect();
        (paths.join(" "), page.next)
    };
    assert_eq!(page(None, 10, None), (String::new(), None));
    let mut manifest = queue.manifest(&id("..x"), 1).expect("opened");
    for path in ["a", "x1", "b"] {
        manifest.add(&outcome(path)).expect("added");
    }
    manifest.flush().expect("written");
    let path = queue.folder.join("transfers/%2E.x~1/1.jsonl");
    assert!(path.starts_with(queue.folder.join("transfers")), "{path:?}");
    let mut text = std::fs::read(&path).expect("read");
    text.extend_from_slice(b"{\"path\": \"torn");
    std::fs::write(&path, text).expect("torn");
    assert_eq!(page(None, 10, None).0, "a x1 b");
    let mut manifest = queue.manifest(&id("..x"), 1).expect("opened");
    manifest.add(&outcome("x2")).expect("added");
    manifest.flush().expect("written");
    let (first, next) = page(None, 2, None);
    assert_eq!(first, "a x1");
    assert_eq!(page(None, 2, next).0, "b x2");
    assert_eq!(page(Some(FileState::Failed), 10, None).0, "x1 x2");
    let bad = FilesQuery {
        cursor: Some("2-0".into()),
        limit: 1,
        state: None,
    };
    assert!(queue.files(&alice, "..x", &bad).is_err());
    assert!(queue.files(&actor("bob"), "..x", &bad).is_err());
}

/// Ends the transfer, with one file in its list.
fn end(queue: &Queue, file: &str) {
    let job = begin(queue, "t");
    let mut manifest = queue.manifest(&job.id, job.attempt).expect("opened");
    manifest.add(&outcome(file)).expect("added");
    manifest.flush().expect("written");
    queue.ended(&job.id, Ending::Done).expect("ended");
}

fn listed(queue: &Queue) -> Vec<String> {
    let query = FilesQuery {
        state: None,
        limit: 10,
        cursor: None,
    };
    let page = queue.files(&actor("alice"), "t", &query).expect("listed");
    page.files.into_iter().map(|file| file.path).collect()
}

#[test]
fn the_lists_of_a_forgotten_transfer_go_without_those_of_the_next_of_its_id() {
    let queue = queue();
    for round in 0..100 {
        queue.submit(by("alice", request("t"))).expect("taken");
        end(&queue, "old");
        let new = format!("new{round}");
        std::thread::scope(|scope| {
            // Delete the old lists while the next transfer of the same id writes its own list.
            scope.spawn(|| queue.delete(&actor("alice"), "t").expect("forgotten"));
            while queue.is_known(&id("t")).expect("asked") {}
            queue.submit(by("alice", request("t"))).expect("taken");
            end(&queue, &new);
        });
        assert_eq!(listed(&queue), [new]);
        queue.delete(&actor("alice"), "t").expect("forgotten");
    }
    let left = std::fs::read_dir(queue.folder.join("transfers")).expect("read");
    assert_eq!(left.count(), 0);
}

#[test]
fn lists_that_a_kill_left_go_at_the_next_start_and_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    queue.submit(by("alice", request("t"))).expect("taken");
    end(&queue, "kept");
    drop(queue);
    let transfers = folder.path().join("transfers");
    for left in ["t~77", "%2E.x~3", "old", "no~number"] {
        std::fs::create_dir(transfers.join(left)).expect("made");
        std::fs::write(transfers.join(left).join("1.jsonl"), "").expect("written");
    }
    let queue = open(folder.path());
    assert_eq!(listed(&queue), ["kept"]);
    let names = std::fs::read_dir(&transfers).expect("read");
    let names = names.map(|item| item.expect("read").file_name().into_string().expect("text"));
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["no~number", "old", "t~1"]);
}
