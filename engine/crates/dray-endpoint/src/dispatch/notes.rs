//! Notices about promises that transfers without a session will miss. A separate thread writes the
//! notices, so that the rounds of shares do not wait for the disk of the state folder.

use dray_core::Time;
use dray_core::lock::LockExt;
use dray_queue::Queue;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of notices that wait to be written. Further notices go only to the program's log.
const NOTES_MAX: usize = 100_000;

/// Time after which a failed write of notices is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(2);

/// A transfer id and the text of its notice.
pub(super) type Note = (String, String);

/// The notices that wait to be written. Notices that still cannot be written when this value is
/// dropped are only in the program's log.
pub(super) struct Notes {
    queue: Arc<Queue>,
    waiting: Vec<Note>,
    /// The thread that writes notices. It returns the notices that it could not write.
    writing: Option<JoinHandle<Vec<Note>>>,
    /// Earliest time of the next write.
    write_at: Time,
}

impl Notes {
    pub(super) const fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            waiting: Vec::new(),
            writing: None,
            write_at: Time::ZERO,
        }
    }

    pub(super) fn push(&mut self, note: Note) {
        if self.waiting.len() < NOTES_MAX {
            self.waiting.push(note);
        }
    }

    /// Starts to write the waiting notices, unless a previous write is still running.
    pub(super) fn write(&mut self, now: Time) {
        let is_writing = self.writing.as_ref();
        if is_writing.is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        if self.take_unwritten() {
            self.write_at = now + WRITE_AGAIN;
        }
        if self.waiting.is_empty() || now < self.write_at {
            return;
        }
        let (queue, notes) = (Arc::clone(&self.queue), std::mem::take(&mut self.waiting));
        let shared = Arc::new(Mutex::new(notes));
        let thread = std::thread::Builder::new().name("dray-notes".to_owned());
        let spawned = thread.spawn({
            let shared = Arc::clone(&shared);
            move || write(&queue, take(&shared))
        });
        match spawned {
            Ok(thread) => self.writing = Some(thread),
            Err(error) => {
                tracing::error!(
                    "cannot start the thread that records which promises will be missed: {error}"
                );
                (self.waiting, self.write_at) = (take(&shared), now + WRITE_AGAIN);
            }
        }
    }

    /// Waits for the writing thread. Inserts the notices that the thread could not write in front
    /// of the newer notices. Returns true if there are such notices.
    fn take_unwritten(&mut self) -> bool {
        let written = self.writing.take().map(JoinHandle::join);
        let mut left = written.and_then(Result::ok).unwrap_or_default();
        let is_left = !left.is_empty();
        left.append(&mut self.waiting);
        left.truncate(NOTES_MAX);
        self.waiting = left;
        is_left
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.take_unwritten();
        write(&self.queue, std::mem::take(&mut self.waiting));
    }
}

/// Writes notices. Returns the notices that could not be written.
fn write(queue: &Queue, mut notes: Vec<Note>) -> Vec<Note> {
    if let Err(error) = queue.note_all(&mut notes) {
        tracing::error!("cannot record which promises will be missed: {error}");
    }
    notes
}

fn take(notes: &Mutex<Vec<Note>>) -> Vec<Note> {
    std::mem::take(&mut notes.lock_unpoisoned())
}

#[cfg(test)]
mod tests {
    use super::Notes;
    use crate::actor::actor;
    use crate::queue_settings::queue_settings;
    use dray_config::Config;
    use dray_core::Time;
    use dray_queue::Queue;
    use dray_queue::clock;
    use dray_queue::events::Hub;
    use std::sync::Arc;

    #[test]
    fn unwritten_notices_are_written_later_and_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = format!(
            "name = \"a.example\"\nstate = {:?}\n[[root]]\nname = \"data\"\npath = \"/data\"\n",
            folder.path()
        );
        let config = Config::parse("test", &text).expect("good");
        let queue = Queue::open(queue_settings(&config), Arc::new(Hub::new(4, clock::now())))
            .expect("opened");
        let mut notes = Notes::new(Arc::clone(&queue));
        let request = serde_json::from_value(serde_json::json!({
            "id": "one",
            "sources": [{"url": "dray://b.example/data/x"}],
            "destination": {"url": "/data/x"},
        }))
        .expect("good");
        let submission = dray_queue::Submission {
            route: config.route(&request).expect("good"),
            request,
            owner: "alice".to_owned(),
            principal: "alice@test".to_owned(),
            claim: None,
        };
        queue.submit(submission).expect("taken");
        let rename = |from: &'static str, to: &'static str| {
            let statement = format!("ALTER TABLE {from} RENAME TO {to}");
            let database = rusqlite::Connection::open(folder.path().join("queue.db"));
            let renamed = database.and_then(|database| database.execute_batch(&statement));
            renamed.expect("renamed");
        };
        rename("transfers", "elsewhere");
        // More notices than one write to the queue takes.
        for number in 0..1_200 {
            notes.push(("one".to_owned(), format!("word {number}")));
        }
        notes.write(Time::ZERO);
        assert!(notes.take_unwritten(), "nothing could be written");
        assert_eq!(notes.waiting.len(), 1_200);
        rename("elsewhere", "transfers");
        notes.push(("one".to_owned(), "the last".to_owned()));
        drop(notes);
        let alice = dray_access::Principal {
            name: "alice@test".to_owned(),
            owner: "alice".to_owned(),
            is_administrator: false,
            rights: dray_access::Rights::Rules,
        };
        let shown = queue.show(&actor(&alice), "one").expect("there");
        let last: Vec<&str> = shown.notices.iter().map(String::as_str).collect();
        assert_eq!(
            last[last.len() - 3..],
            ["word 1198", "word 1199", "the last"]
        );
    }
}
