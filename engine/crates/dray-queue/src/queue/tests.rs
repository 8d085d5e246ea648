mod bound;
mod candidates;
mod claims;
mod commands;
mod durable;
mod endings;
mod files;
mod list;
mod lookups;
mod receipts;
mod restart;
mod routes;
mod secrets;
mod staging;
mod stored_promises;
mod submissions;
mod tiers;
mod unattended;
mod writes;

use super::{Actor, Ending, Queue, Settings, Submission};
use crate::clock;
use crate::events::Hub;
use crate::promises;
use dray_api::{Request, RetryWish};
use dray_core::{End, Error, ErrorKind, TransferId};
use routes::route;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn settings(state: &Path) -> Settings {
    Settings {
        state: state.to_owned(),
        transfers: 2_000,
        transfers_of_owner: 50_000,
        tickets_of_owner: 200_000,
        retry: RetryWish {
            tries: 1,
            interval_seconds: 10,
        },
        keep: Duration::from_secs(30 * 86_400),
        keep_count: 5,
        keeps_receipts: false,
        promises: promise_settings(None),
        is_own: Arc::new(|address| address.starts_with("a.example:")),
    }
}

/// Returns the settings of an endpoint `a.example` with one root and this rate.
fn promise_settings(rate: Option<u64>) -> promises::Settings {
    promises::Settings {
        transfers_max: 100_000,
        rate,
        roots: vec![promises::RootRate {
            name: "data".to_owned(),
            rate: None,
        }],
        tiers: Vec::new(),
        shares: Vec::new(),
    }
}

fn open(state: &Path) -> Arc<Queue> {
    let hub = Arc::new(Hub::new(4, clock::now()));
    Queue::open(settings(state), hub).expect("opened")
}

struct QueueInFolder {
    _folder: tempfile::TempDir,
    queue: Arc<Queue>,
}

fn queue() -> QueueInFolder {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(&folder.path().join("state"));
    QueueInFolder {
        _folder: folder,
        queue,
    }
}

impl std::ops::Deref for QueueInFolder {
    type Target = Queue;
    fn deref(&self) -> &Queue {
        &self.queue
    }
}

fn actor(owner: &str) -> Actor {
    Actor {
        owner: owner.to_owned(),
        is_administrator: owner == "root",
    }
}

pub(super) fn request(id: &str) -> Request {
    serde_json::from_value(json!({
        "id": id,
        "sources": [{"url": "dray://b.example/data/x", "ticket": "drt_one"}],
        "destination": {"url": "/data/x"},
    }))
    .expect("good")
}

fn by(owner: &str, request: Request) -> Submission {
    Submission {
        route: route(&request),
        request,
        owner: owner.to_owned(),
        principal: format!("{owner}@test"),
        claim: None,
    }
}

pub(super) fn id(text: &str) -> TransferId {
    TransferId::new(text).expect("good")
}

fn begin(queue: &Queue, text: &str) -> super::SessionInput {
    let version = queue.show(&actor("root"), text).expect("there").version;
    let begun = queue.begin(&id(text), version).expect("written");
    begun.expect("still queued")
}

fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, End::Network, "send")
}

fn broken(has_progressed: bool) -> Ending {
    Ending::Broken {
        error: lost(),
        has_progressed,
        is_whole: false,
        source: None,
    }
}
