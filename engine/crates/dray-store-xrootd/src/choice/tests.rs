use super::{BELIEF, REST, Track, choose};
use std::time::{Duration, Instant};

const USUAL: Duration = Duration::from_millis(10);

/// Returns the states of two servers and the manager. Each has completed one read, which took the
/// given multiple of the usual time.
fn tracks(times: &[u32], now: Instant) -> Vec<Track> {
    let track = |times: &u32| {
        let mut track = Track::default();
        let began = now - USUAL * *times;
        track.begin(began);
        track.end(began, Some(USUAL * *times), now);
        track
    };
    times.iter().map(track).chain([Track::default()]).collect()
}

#[test]
fn each_is_read_for_its_own_part_while_all_do_alike() {
    let now = Instant::now();
    let mut tracks = tracks(&[2, 3], now);
    for meant in [0, 1] {
        assert_eq!(choose(&tracks, meant, &[], now), Some(meant));
    }
    tracks[0].begin(now);
    assert_eq!(choose(&tracks, 0, &[], now), Some(0));
    assert_eq!(choose(&[], 0, &[], now), None);
}

#[test]
fn a_slow_one_gets_as_much_as_it_is_sooner_for() {
    let now = Instant::now();
    let mut tracks = tracks(&[1, 10], now);
    assert_eq!(choose(&tracks, 1, &[], now), Some(0), "the other is free");
    for _ in 0..3 {
        tracks[0].begin(now);
    }
    assert_eq!(
        choose(&tracks, 1, &[], now),
        Some(1),
        "the other has much to do"
    );
    tracks[1].begin(now);
    assert_eq!(choose(&tracks, 1, &[], now), Some(0), "and so has it now");
}

#[test]
fn nobody_is_taken_for_slow_for_ever() {
    let now = Instant::now();
    let mut tracks = tracks(&[1, 100], now);
    let later = now + BELIEF;
    assert_eq!(choose(&tracks, 1, &[], later - USUAL), Some(0));
    assert_eq!(choose(&tracks, 1, &[], later), Some(1), "one finds out");
    tracks[1].begin(later);
    assert_eq!(choose(&tracks, 1, &[], later), Some(0), "and no more");
    let done = later + USUAL;
    tracks[1].end(later, Some(USUAL), done);
    assert_eq!(
        choose(&tracks, 1, &[], done),
        Some(1),
        "it is as quick as the other"
    );
}

#[test]
fn a_quick_replica_is_not_slow() {
    let now = Instant::now();
    let mut tracks = tracks(&[1, 1], now);
    for (track, took) in tracks.iter_mut().zip([100, 1900]) {
        track.pace = Some((Duration::from_micros(took), now));
    }
    assert_eq!(choose(&tracks, 1, &[], now), Some(1));
}

#[test]
fn one_that_stands_still_gets_nothing_more() {
    let began = Instant::now();
    let mut tracks = tracks(&[1, 1], began);
    tracks[1].begin(began);
    let now = began + Duration::from_secs(5);
    for _ in 0..100 {
        tracks[0].begin(now);
    }
    assert_eq!(choose(&tracks, 1, &[], now), Some(0));
}

#[test]
fn one_that_failed_rests_and_the_manager_comes_last() {
    let now = Instant::now();
    let mut tracks = tracks(&[1, 1], now);
    tracks[1].rest(now);
    assert_eq!(choose(&tracks, 1, &[1], now), Some(0));
    assert_eq!(choose(&tracks, 1, &[], now), Some(0));
    assert_eq!(choose(&tracks, 1, &[], now + REST), Some(1), "tried again");
    tracks[0].rest(now);
    assert_eq!(choose(&tracks, 1, &[1, 0], now), Some(2), "the manager");
    tracks[2].rest(now);
    assert_eq!(choose(&tracks, 1, &[1, 0, 2], now), None);
    assert_eq!(choose(&tracks, 1, &[], now), Some(1), "all rest");
}

#[test]
fn another_version_is_never_read() {
    let now = Instant::now();
    let mut tracks = tracks(&[1, 1], now);
    tracks[1].leave();
    assert_eq!(choose(&tracks, 1, &[], now), Some(0));
    assert_eq!(
        choose(&tracks, 1, &[0], now),
        None,
        "nor whatever the manager may know"
    );
    tracks[0].rest(now);
    assert_eq!(choose(&tracks, 1, &[], now), Some(0), "there is no other");
    for track in &mut tracks {
        track.leave();
    }
    assert_eq!(choose(&tracks, 1, &[], now), None);
}

#[test]
fn reads_that_failed_say_nothing_of_the_pace() {
    let now = Instant::now();
    let mut track = Track::default();
    track.begin(now);
    track.end(now, None, now + Duration::from_secs(9));
    assert!(track.pace.is_none() && track.under_way.is_empty());
}
