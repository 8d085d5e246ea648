use super::Monitor;
use crate::actor::actor;
use crate::live::{Moving, Way};
use crate::queue_settings::queue_settings;
use dray_access::{Principal, Rights};
use dray_api::RateWish;
use dray_api::StageWord;
use dray_config::Config;
use dray_core::TransferId;
use dray_core::profile::Stage;
use dray_queue::clock;
use dray_queue::events::Hub;
use dray_queue::{Counters, Queue, SessionInput, Submission};
use dray_runtime::observe::Observer;
use dray_session::Progress;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Creates a queue with one transfer that has started.
fn begun(folder: &Path) -> (Arc<Queue>, SessionInput) {
    let text = format!(
        "name = \"a.example\"\nstate = {folder:?}\nrate = \"100MB/s\"\n\
         [[root]]\nname = \"data\"\npath = \"/data\"\n",
    );
    let config = Config::parse("test", &text).expect("good");
    let queue =
        Queue::open(queue_settings(&config), Arc::new(Hub::new(4, clock::now()))).expect("opened");
    let request = json!({
        "id": "one",
        "sources": [{"url": "dray://b.example/data/x"}],
        "destination": {"url": "/data/x"},
    });
    let request = serde_json::from_value(request).expect("good");
    let submission = Submission {
        route: config.route(&request).expect("good"),
        request,
        owner: "alice".to_owned(),
        principal: "alice".to_owned(),
        claim: None,
    };
    let taken = queue.submit(submission).expect("taken").transfer;
    let id = TransferId::new("one").expect("good");
    let input = queue
        .begin(&id, taken.version)
        .expect("asked")
        .expect("begun");
    (queue, input)
}

fn alice() -> Principal {
    Principal {
        name: "alice@test".to_owned(),
        owner: "alice".to_owned(),
        is_administrator: false,
        rights: Rights::Rules,
    }
}

fn watched<'q>(queue: &'q Queue, input: &SessionInput) -> Monitor<'q> {
    let (owner, peer) = ("alice".to_owned(), "b.example".to_owned());
    let moving = Moving::new(input.id.clone(), owner, peer, Way::In, RateWish::default());
    Monitor::new(queue, input, Arc::new(moving))
}

#[test]
fn a_deadline_that_comes_before_the_files_are_listed_is_asked_for_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let (queue, input) = begun(folder.path());
    let monitor = watched(&queue, &input);
    let deadline = clock::now().after(Duration::from_secs(1_001));
    let patch = json!({"deadline": deadline});
    let patch = serde_json::from_value(patch).expect("good");
    queue.patch(&actor(&alice()), "one", &patch).expect("taken");
    assert!(!queue.promises().is_promised("one"));
    monitor.progress(&Progress {
        listing_done: true,
        bytes_listed: 60_000_000_000,
        ..Progress::default()
    });
    assert!(queue.promises().is_promised("one"));
}

#[test]
fn the_profile_of_an_attempt_covers_all_its_sessions() {
    let folder = tempfile::tempdir().expect("a folder");
    let (queue, input) = begun(folder.path());
    let mut progress = Progress::default();
    let told = |monitor: &Monitor<'_>, progress: &Progress| {
        monitor.progress(progress);
        let told = queue.show(&actor(&alice()), "one").expect("there");
        (told.profile, told.bottleneck)
    };
    let monitor = watched(&queue, &input);
    assert_eq!(told(&monitor, &progress).1, None);
    let (source, sink) = (&mut progress.profile.source, &mut progress.profile.sink);
    source.add(Stage::Credit, Duration::from_secs(5));
    sink.add(Stage::Write, Duration::from_millis(4_500));
    let (profile, bottleneck) = told(&monitor, &progress);
    assert_eq!(bottleneck, Some(StageWord::Write));
    assert_eq!(profile.source, [(StageWord::Credit, 5.0)].into());
    assert_eq!(profile.sink, [(StageWord::Write, 4.5)].into());
    // The stored form of the counters is read back unchanged.
    let counters = monitor.counters(&progress);
    let kept = serde_json::to_string(&counters).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Counters>(&kept).expect("read"),
        counters
    );
    let old = r#"{"objects": {"sent": 1, "resumed": 0}}"#;
    let old: Counters = serde_json::from_str(old).expect("of an earlier version");
    assert!(old.profile.source.is_empty());
}
