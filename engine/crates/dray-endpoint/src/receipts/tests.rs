use super::Receipts;
use crate::queue_settings::queue_settings;
use dray_api::{FileOutcome, FileState};
use dray_config::Config;
use dray_core::TransferId;
use dray_queue::events::Hub;
use dray_queue::{Ending, Queue, RECEIPTS_MAX, Submission, clock};
use dray_receipt::{Chain, KeyRing, ListDigest, id_of, verify_checkpoint, verify_receipt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

struct Site {
    config: Config,
    queue: Arc<Queue>,
    receipts: Arc<Receipts>,
}

fn open(state: &Path) -> Site {
    open_with(state, "keep_days = 1\nkeep_min = 1")
}

fn open_with(state: &Path, keep: &str) -> Site {
    let text = format!(
        "name = \"a.example\"\nstate = {state:?}\n[[root]]\nname = \"data\"\npath = \"/data\"\n\
         [receipts]\n{keep}\n",
    );
    let config = Config::parse("test", &text).expect("good");
    let hub = Arc::new(Hub::new(4, clock::now()));
    let queue = Queue::open(queue_settings(&config), hub).expect("opened");
    let receipts = Receipts::open(&config, &queue).expect("opened");
    let receipts = receipts.expect("receipts are on by default");
    Site {
        config,
        queue,
        receipts,
    }
}

impl Site {
    /// Runs a transfer with one file.
    fn transfer(&self, id: &str) {
        let request = serde_json::from_value(serde_json::json!({
            "id": id,
            "sources": [{"url": "dray://b.example/data/x"}],
            "destination": {"url": "/data/x"},
            "deadline": "2100-01-01T00:00:00Z",
        }))
        .expect("good");
        let submission = Submission {
            route: self.config.route(&request).expect("good"),
            request,
            owner: "alice".to_owned(),
            principal: "alice@test".to_owned(),
            claim: None,
        };
        let submitted = self.queue.submit(submission).expect("taken");
        let id = TransferId::new(id).expect("good");
        let version = submitted.transfer.version;
        let input = self
            .queue
            .begin(&id, version)
            .expect("written")
            .expect("queued");
        let mut list = self.queue.manifest(&id, input.attempt).expect("opened");
        list.add(&FileOutcome {
            path: "x".to_owned(),
            state: FileState::Done,
            size: Some(7),
            adler32: None,
            crc32c: Some("0000000a".to_owned()),
            error: None,
        })
        .expect("added");
        list.sync().expect("synced");
        self.queue.ended(&id, Ending::Done).expect("written");
    }

    fn write(&self) {
        self.receipts.write_all(&|| false).expect("written");
    }
}

/// Verifies the files of the folder as an auditor does. Returns the ids of the transfers.
fn audit(folder: &Path) -> dray_core::Result<Vec<String>> {
    let keys = std::fs::read(folder.join("keys.json")).expect("keys");
    let keys = KeyRing::parse(&keys)?;
    let point = std::fs::read_to_string(folder.join("checkpoint")).ok();
    let point = point
        .map(|line| verify_checkpoint(line.trim_end(), &keys))
        .transpose()?;
    let mut chain = Chain::new(point.map(|(point, _)| point));
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("read")
        .map(|item| item.expect("read").path())
        .filter(|path| path.extension().is_some_and(|end| end == "receipt"))
        .collect();
    names.sort();
    let mut ids = Vec::new();
    for path in names {
        let text = std::fs::read_to_string(&path).expect("read");
        let mut lines = text.split_inclusive('\n');
        let first = lines.next().expect("a line").trim_end();
        let (head, _) = verify_receipt(first, &keys)?;
        let mut list = ListDigest::default();
        lines.for_each(|line| list.add(line.as_bytes()));
        list.compare(&head.list)?;
        chain.add(&head, &id_of(first))?;
        ids.push(head.transfer.id);
    }
    Ok(ids)
}

#[test]
fn receipts_form_a_chain_and_name_their_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = open(folder.path());
    for id in ["one", "two"] {
        site.transfer(id);
    }
    site.write();
    let place = folder.path().join("receipts");
    assert_eq!(audit(&place).expect("good"), ["one", "two"]);
    let text = std::fs::read_to_string(place.join("000000000002.receipt")).expect("read");
    let keys =
        KeyRing::parse(&std::fs::read(place.join("keys.json")).expect("keys")).expect("keys");
    let first = text.lines().next().expect("a line");
    let (head, _) = verify_receipt(first, &keys).expect("good");
    assert_eq!(head.plan.missed, Some(false));
    assert_eq!(head.transfer.state, "done");
    assert_eq!(head.list.lines, 1);
    assert!(text.lines().nth(1).expect("a line").contains("0000000a"));
    let mode = |name: &str| {
        let state = std::fs::metadata(place.join(name)).expect("there");
        state.permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("key.pem"), mode("000000000001.receipt")),
        (0o600, 0o600)
    );
}

#[test]
fn a_receipt_that_a_crash_left_unrecorded_is_recorded_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = open(folder.path());
    site.transfer("one");
    site.transfer("two");
    // The crash comes after the file has its name, and before the queue knows.
    let due = site.queue.receipts_due(0).expect("read").receipts;
    let written = site.receipts.write(&due[0], None).expect("written");
    let written = written.expect("a receipt");
    std::fs::write(folder.path().join("receipts/.new-000000000002"), "half").expect("written");
    drop(site);
    let site = open(folder.path());
    assert_eq!(
        site.queue.last_receipt().expect("read"),
        Some(written.receipt)
    );
    assert_eq!(site.queue.receipts_due(0).expect("read").receipts.len(), 1);
    site.write();
    assert_eq!(
        audit(&folder.path().join("receipts")).expect("good"),
        ["one", "two"]
    );
    assert!(!folder.path().join("receipts/.new-000000000002").exists());
}

#[test]
fn a_new_queue_continues_the_chain_of_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = open(folder.path());
    site.transfer("one");
    site.write();
    drop(site);
    for item in std::fs::read_dir(folder.path()).expect("read") {
        let path = item.expect("read").path();
        if path.is_file() {
            std::fs::remove_file(path).expect("removed");
        }
    }
    let site = open(folder.path());
    site.transfer("two");
    site.write();
    assert_eq!(
        audit(&folder.path().join("receipts")).expect("good"),
        ["one", "two"]
    );
}

#[test]
fn a_new_queue_continues_the_chain_of_a_checkpoint() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts");
    let site = open(folder.path());
    for id in ["one", "two"] {
        site.transfer(id);
    }
    site.write();
    let later = clock::now().after(Duration::from_secs(2 * 86_400));
    site.receipts.remove_old(later).expect("removed");
    drop(site);
    std::fs::remove_file(place.join("000000000002.receipt")).expect("removed");
    for item in std::fs::read_dir(folder.path()).expect("read") {
        let path = item.expect("read").path();
        if path.is_file() {
            std::fs::remove_file(path).expect("removed");
        }
    }
    let site = open(folder.path());
    site.transfer("three");
    site.write();
    assert!(
        !place.join("000000000001.receipt").exists(),
        "a second receipt with this number"
    );
    assert_eq!(audit(&place).expect("good"), ["three"]);
}

#[test]
fn an_attempt_whose_list_cannot_be_read_stops_no_other_receipt() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts");
    let site = open(folder.path());
    for id in ["one", "two"] {
        site.transfer(id);
    }
    // A read of a folder fails for every user.
    let list = site.queue.receipts_due(0).expect("read").receipts[0]
        .list
        .clone();
    let aside = list.with_extension("aside");
    std::fs::rename(&list, &aside).expect("moved");
    std::fs::create_dir(&list).expect("made");
    site.write();
    assert_eq!(audit(&place).expect("good"), ["two"]);
    let notices = || {
        let heard = site.queue.hub().since(0, usize::MAX, |_| true);
        let notices = heard
            .events
            .iter()
            .filter_map(|one| one.event.notice.clone());
        notices.filter(|words| words.contains("receipt")).count()
    };
    assert_eq!(notices(), 1);
    site.write();
    assert_eq!(notices(), 1, "reported once");
    std::fs::remove_dir(&list).expect("removed");
    std::fs::rename(&aside, &list).expect("moved back");
    site.write();
    assert_eq!(audit(&place).expect("good"), ["two", "one"]);
}

#[test]
fn many_receipts_that_a_crash_left_unrecorded_are_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts");
    let site = open(folder.path());
    let count = RECEIPTS_MAX as usize + 2;
    for at in 0..count {
        site.transfer(&format!("t{at}"));
    }
    let mut last = None;
    let mut after = 0;
    loop {
        let page = site.queue.receipts_due(after).expect("read");
        for due in &page.receipts {
            let written = site.receipts.write(due, last.as_ref()).expect("written");
            last = written.map(|written| written.receipt);
        }
        match page.last {
            Some(next) => after = next,
            None => break,
        }
    }
    drop(site);
    let site = open(folder.path());
    assert_eq!(site.queue.last_receipt().expect("read"), last);
    assert_eq!(site.queue.receipts_due(0).expect("read").last, None);
    assert_eq!(audit(&place).expect("good").len(), count);
}

#[test]
fn a_start_takes_the_permissions_of_other_users_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts");
    let site = open(folder.path());
    site.transfer("one");
    site.write();
    drop(site);
    let wide = |path: &Path, mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("set");
    };
    wide(&place, 0o755);
    wide(&place.join("key.pem"), 0o644);
    let site = open(folder.path());
    let mode = |path: &Path| {
        let state = std::fs::metadata(path).expect("there");
        state.permissions().mode() & 0o7777
    };
    assert_eq!(mode(&place), 0o700);
    for name in ["key.pem", "keys.json", "lock", "000000000001.receipt"] {
        assert_eq!(mode(&place.join(name)), 0o600, "{name}");
    }
    site.transfer("two");
    site.write();
    assert_eq!(audit(&place).expect("good"), ["one", "two"]);
}

#[test]
fn a_foreign_receipt_stops_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = open(folder.path());
    site.transfer("one");
    site.write();
    let place = folder.path().join("receipts");
    std::fs::copy(
        place.join("000000000001.receipt"),
        place.join("000000000002.receipt"),
    )
    .expect("copied");
    let (config, queue) = (site.config, site.queue);
    drop(site.receipts);
    let error = Receipts::open(&config, &queue).err().expect("refused");
    assert!(error.cause.contains("000000000002.receipt"), "{error}");
}

#[test]
fn a_changed_key_keeps_old_receipts_verifiable() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts");
    let site = open(folder.path());
    for id in ["one", "two"] {
        site.transfer(id);
    }
    site.write();
    let later = clock::now().after(Duration::from_secs(2 * 86_400));
    site.receipts.remove_old(later).expect("removed");
    site.transfer("three");
    // A crash leaves a receipt of the old key unrecorded.
    let last = site.queue.last_receipt().expect("read");
    let due = site.queue.receipts_due(0).expect("read").receipts;
    site.receipts
        .write(&due[0], last.as_ref())
        .expect("written");
    let old = std::fs::read(place.join("key.pem")).expect("read");
    drop(site);
    std::fs::remove_file(place.join("key.pem")).expect("removed");
    let site = open(folder.path());
    site.transfer("four");
    site.write();
    let keys = site.receipts.public().expect("read").keys;
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0]["dray_sequence_last"], 3);
    assert_eq!(keys[1]["dray_sequence_first"], 4);
    assert_eq!(audit(&place).expect("good"), ["two", "three", "four"]);
    let (config, queue) = (site.config, site.queue);
    drop(site.receipts);
    std::fs::write(place.join("key.pem"), old).expect("written");
    let error = Receipts::open(&config, &queue)
        .err()
        .expect("a retired key");
    assert!(
        error.cause.contains("retired after the receipt 3"),
        "{error}"
    );
    assert!(error.remedy.contains("key.pem"), "{error}");
}

#[test]
fn old_receipts_are_removed_and_the_rest_is_verifiable() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts");
    let site = open(folder.path());
    for id in ["one", "two", "three"] {
        site.transfer(id);
    }
    site.write();
    let now = clock::now();
    site.receipts.remove_old(now).expect("nothing is old");
    assert_eq!(audit(&place).expect("good").len(), 3);
    let later = now.after(Duration::from_secs(2 * 86_400));
    site.receipts.remove_old(later).expect("removed");
    assert_eq!(audit(&place).expect("good"), ["three"]);
    site.transfer("four");
    site.write();
    site.receipts.remove_old(later).expect("removed");
    assert_eq!(audit(&place).expect("good"), ["four"]);
    std::fs::remove_file(place.join("checkpoint")).expect("removed");
    audit(&place).expect_err("a chain without its beginning");
}

#[test]
fn a_jump_of_the_clock_does_not_remove_the_newest_receipts() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts");
    let site = open_with(folder.path(), "keep_days = 1\nkeep_min = 2");
    for id in ["one", "two", "three"] {
        site.transfer(id);
    }
    site.write();
    let years = clock::now().after(Duration::from_secs(20 * 365 * 86_400));
    site.receipts.remove_old(years).expect("removed");
    assert_eq!(audit(&place).expect("good"), ["two", "three"]);
    site.receipts.remove_old(years).expect("removed");
    assert_eq!(audit(&place).expect("good"), ["two", "three"]);
}

#[test]
fn receipts_beyond_the_count_and_the_bytes_are_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts");
    let keep = |rule: &str| open_with(folder.path(), &format!("keep_days = 0\n{rule}"));
    let site = keep("keep_count = 3");
    for id in ["a", "b", "c", "d", "e"] {
        site.transfer(id);
    }
    site.write();
    let now = clock::now();
    site.receipts.remove_old(now).expect("removed");
    assert_eq!(audit(&place).expect("good"), ["c", "d", "e"]);
    let size = |sequence: u64| {
        let file = place.join(format!("{sequence:012}.receipt"));
        std::fs::metadata(file).expect("there").len()
    };
    let two = size(4) + size(5);
    drop(site);
    let site = keep(&format!("keep_bytes = {two}"));
    site.receipts.remove_old(now).expect("removed");
    assert_eq!(audit(&place).expect("good"), ["d", "e"]);
    drop(site);
    let site = keep("keep_bytes = 1");
    site.receipts.remove_old(now).expect("removed");
    assert_eq!(
        audit(&place).expect("good"),
        ["e"],
        "the newest receipt stays"
    );
    drop(site);
    let site = keep("keep_count = 0\nkeep_bytes = 0");
    site.transfer("f");
    site.write();
    site.receipts.remove_old(now).expect("nothing to remove");
    assert_eq!(audit(&place).expect("good"), ["e", "f"]);
}

#[test]
fn two_endpoints_cannot_share_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = open(folder.path());
    let error = Receipts::open(&site.config, &site.queue)
        .err()
        .expect("refused");
    assert!(error.remedy.contains("[receipts]"), "{error}");
}
