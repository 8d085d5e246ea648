//! Tests of the file that stores the tuner's results.

use super::{FILE, PAIRS_MAX, Pairs, pair};
use dray_core::Time;
use dray_sched::tuner::{Remembered, Setting};
use std::path::Path;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// 2026-11-21T17:00:00.123Z, rounded up from nanoseconds.
const NOW: Time = Time::from_nanos(1_795_280_400_122_999_999);

fn open(state: &Path, now: Time) -> Pairs {
    // Every warning mentions the streams.
    Pairs::open(state, now, |words| {
        assert!(words.contains("streams"), "{words}")
    })
}

fn found(streams: u32, most: Option<u32>) -> Remembered {
    Remembered {
        setting: Setting {
            streams,
            readers: 1,
            writers: 1,
            object_bytes: 1 << 20,
        },
        most: Setting {
            streams: most.unwrap_or(Setting::UNBOUNDED.streams),
            ..Setting::UNBOUNDED
        },
    }
}

#[test]
fn results_of_each_direction_survive_a_restart() {
    let state = tempfile::tempdir().expect("a folder");
    let now = NOW;
    let pairs = open(state.path(), now);
    assert_eq!(pairs.of(&pair("sha256:aa", true), now), None);
    pairs.keep(pair("sha256:aa", true), found(12, None), now);
    pairs.keep(pair("sha256:aa", false), found(7, Some(9)), now);
    let again = open(state.path(), now + DAY);
    let of =
        |other: &str, reads_here, days: u32| again.of(&pair(other, reads_here), now + days * DAY);
    assert_eq!(of("sha256:aa", true, 1), Some(found(12, None)));
    assert_eq!(of("sha256:aa", false, 1), Some(found(7, Some(9))));
    assert_eq!(of("sha256:bb", true, 1), None);
    assert_eq!(of("sha256:aa", true, 29), Some(found(12, None)));
    assert_eq!(of("sha256:aa", true, 31), None, "that is long ago");
    let late = open(state.path(), now + 31 * DAY);
    assert_eq!(late.of(&pair("sha256:aa", true), now), None);
    assert!(!state.path().join("tuner.json.damaged").exists());
}

#[test]
fn the_oldest_pair_is_dropped_beyond_the_maximum() {
    let state = tempfile::tempdir().expect("a folder");
    let now = NOW;
    let pairs = open(state.path(), now);
    // Names of the maximum length, to check that the largest possible file is readable.
    let name = |number: usize| format!("{number:0>256}");
    for number in 0..PAIRS_MAX {
        let mut memory = pairs.memory.lock().expect("not poisoned");
        memory.keep(pair(&name(number), true), found(4, Some(64)), now);
    }
    pairs.keep(pair(&name(PAIRS_MAX), true), found(5, None), now);
    let again = open(state.path(), now);
    assert_eq!(again.of(&pair(&name(0), true), now), None, "the oldest");
    assert!(again.of(&pair(&name(1), true), now).is_some());
    assert!(again.of(&pair(&name(PAIRS_MAX), true), now).is_some());
    pairs.keep(pair(&"x".repeat(257), true), found(5, None), now);
    assert!(
        open(state.path(), now)
            .of(&pair(&name(1), true), now)
            .is_some()
    );
}

#[test]
fn a_damaged_file_is_set_aside_and_does_no_harm() {
    let state = tempfile::tempdir().expect("a folder");
    let (file, aside) = (
        state.path().join(FILE),
        state.path().join("tuner.json.damaged"),
    );
    let now = NOW;
    let key = || pair("sha256:aa", true);
    open(state.path(), now).keep(key(), found(12, None), now);
    let good = std::fs::read_to_string(&file).expect("written");
    for damaged in [
        good[..good.len() / 2].to_owned(),
        String::new(),
        good.replace("\"streams\":12", "\"streams\":0"),
        good.replace("\"version\":1", "\"version\":2"),
        good.replace("sha256:aa", ""),
        format!("{good}{}", " ".repeat(1 << 20)),
        "\u{0}\u{1}".to_owned(),
    ] {
        assert_ne!(damaged, good);
        std::fs::write(&file, &damaged).expect("written");
        let pairs = open(state.path(), now);
        assert_eq!(pairs.of(&key(), now), None, "{damaged:.80}");
        assert_eq!(std::fs::read_to_string(&aside).expect("kept"), damaged);
        assert!(!file.exists());
        pairs.keep(key(), found(3, None), now);
        let again = open(state.path(), now);
        assert_eq!(again.of(&key(), now), Some(found(3, None)));
    }
    // A file that cannot be read now may be intact, so it must stay.
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("made");
    let pairs = open(state.path(), now);
    pairs.keep(key(), found(3, None), now);
    assert_eq!(pairs.of(&key(), now), Some(found(3, None)));
    assert!(file.is_dir(), "stays unchanged");
    // A file that cannot be written causes no error either.
    let pairs = open(&state.path().join("none"), now);
    pairs.keep(key(), found(3, None), now);
    assert_eq!(pairs.of(&key(), now), Some(found(3, None)));
}

#[test]
fn the_format_of_the_file_stays() {
    let state = tempfile::tempdir().expect("a folder");
    let text = concat!(
        r#"{"version":1,"pairs":[{"source":"here","sink":"sha256:aa","streams":12,"#,
        r#""found_at":"2026-11-21T17:00:00.123Z","streams_most":16,"#,
        r#""failed_at":"1970-01-01T00:00:00.000Z"}]}"#
    );
    let file = state.path().join(FILE);
    std::fs::write(&file, text).expect("written");
    let pairs = open(state.path(), NOW);
    let key = || pair("sha256:aa", true);
    assert_eq!(
        pairs.of(&key(), NOW),
        Some(found(12, None)),
        "failed long ago"
    );
    pairs.keep(key(), found(12, None), NOW);
    let written = std::fs::read_to_string(&file).expect("written");
    assert!(
        written.contains(r#""found_at":"2026-11-21T17:00:00.123Z""#),
        "{written}"
    );
}
