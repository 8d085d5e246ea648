use super::dtl::{self, Dtl};
use super::memory::{Memory, Pair};
use super::{Bottleneck, Bounds, Errors, Knob, Remembered, Sample, Setting, Tuner};
use dray_core::Time;
use proptest::prelude::*;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(250);

const fn setting(count: u32) -> Setting {
    Setting {
        streams: count,
        readers: count,
        writers: count,
        object_bytes: 1 << 20,
    }
}

const BOUNDS: Bounds = Bounds {
    least: setting(1),
    most: setting(64),
};

const fn sample(bytes: u64) -> Sample {
    Sample {
        bytes,
        took: STEP,
        errors: Errors {
            streams: 0,
            reads: 0,
            writes: 0,
        },
        bottleneck: Some(Bottleneck::Network),
    }
}

/// Runs a tuner for `seconds`. `path` returns the sample for each setting. Returns the settings
/// over time.
fn run(tuner: &mut Tuner, seconds: u32, path: impl Fn(Setting) -> Sample) -> Vec<Setting> {
    let mut now = tuner.setting();
    (0..seconds * 4)
        .map(|_| {
            now = tuner.told(&path(now));
            now
        })
        .collect()
}

/// Returns a path on which each stream adds 10 MB/s, up to `full` streams.
fn line(full: u32) -> impl Fn(Setting) -> Sample {
    move |setting| sample(2_500_000 * u64::from(setting.streams.min(full)))
}

fn refused(mut sample: Sample, streams: u32) -> Sample {
    sample.errors.streams = streams;
    sample
}

#[test]
fn streams_grow_until_the_line_is_full_and_no_further() {
    for full in [1, 2, 5, 11, 23, 40] {
        let mut tuner = Tuner::new(&BOUNDS, setting(4));
        run(&mut tuner, 60, line(full));
        let held = tuner.remembered().setting.streams;
        assert!(
            (f64::from(full) * 0.9..=f64::from(full).max(4.0) * 1.6).contains(&f64::from(held)),
            "{held} on a line of {full}"
        );
    }
}

#[test]
fn a_line_of_forty_streams_is_full_within_ten_seconds() {
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    let settings = run(&mut tuner, 10, line(40));
    assert!(settings.iter().any(|setting| setting.streams >= 40));
}

#[test]
fn storage_that_congests_gets_as_many_writers_as_it_likes() {
    for start in [2, 4, 16] {
        let mut tuner = Tuner::new(&BOUNDS, setting(start));
        run(&mut tuner, 60, |setting| {
            let writers = u64::from(setting.writers);
            let mut sample = sample(1_000_000 * writers.min(6) * 6 / writers.max(6));
            sample.bottleneck = Some(Bottleneck::Write);
            sample
        });
        let known = tuner.remembered().setting;
        assert!((5..=7).contains(&known.writers), "{known:?} from {start}");
        assert_eq!((known.streams, known.readers), (start, start));
    }
}

#[test]
fn the_tuner_changes_only_the_setting_of_the_bottleneck() {
    let cases = [
        (Bottleneck::Network, [true, false, false]),
        (Bottleneck::Read, [false, true, false]),
        (Bottleneck::Write, [false, false, true]),
        (Bottleneck::Other, [false, false, false]),
    ];
    for (bottleneck, may_move) in cases {
        let mut tuner = Tuner::new(&BOUNDS, setting(4));
        let settings = run(&mut tuner, 30, |_| Sample {
            bottleneck: Some(bottleneck),
            ..sample(1_000_000)
        });
        let knobs = [Knob::Streams, Knob::Readers, Knob::Writers];
        for (knob, may_move) in knobs.into_iter().zip(may_move) {
            let moved = settings.iter().any(|setting| setting.at(knob) != 4);
            assert_eq!(moved, may_move, "{knob:?} while {bottleneck:?} bounds");
        }
    }
}

#[test]
fn where_the_bottleneck_is_not_known_all_are_tried_in_turn() {
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    run(&mut tuner, 120, |setting| Sample {
        bytes: 1_000_000 * u64::from(setting.streams.min(9).min(setting.writers)),
        bottleneck: None,
        ..sample(0)
    });
    let known = tuner.remembered().setting;
    assert!(known.writers >= 8 || known.streams < 8, "{known:?}");
}

#[test]
fn objects_grow_where_each_costs_the_storage_much_and_stay_where_they_may_not() {
    let path = |setting: Setting| Sample {
        // Each object takes 4 ms plus its size at 1 GB/s.
        bytes: (setting.object_bytes as f64 / (4e-3 + setting.object_bytes as f64 / 1e9)) as u64,
        bottleneck: Some(Bottleneck::Write),
        ..sample(0)
    };
    let bounds = Bounds {
        least: Setting {
            object_bytes: 1 << 18,
            ..setting(4)
        },
        most: Setting {
            object_bytes: 1 << 24,
            ..setting(4)
        },
    };
    let mut tuner = Tuner::new(&bounds, setting(4));
    run(&mut tuner, 60, path);
    assert!(tuner.remembered().setting.object_bytes >= 1 << 23);
    let fixed = Bounds {
        least: setting(4),
        most: setting(4),
    };
    let mut tuner = Tuner::new(&fixed, setting(9));
    let settings = run(&mut tuner, 60, path);
    assert!(settings.iter().all(|now| *now == setting(4)));
}

#[test]
fn a_refused_setting_is_left_immediately_and_tried_at_most_twice() {
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    let settings = run(&mut tuner, 600, |setting| {
        let beyond = setting.streams.saturating_sub(20);
        refused(sample(2_500_000 * u64::from(setting.streams)), beyond)
    });
    let beyond: Vec<usize> = (settings.iter().enumerate())
        .filter(|(_, setting)| setting.streams > 20)
        .map(|(at, _)| at)
        .collect();
    assert!((1..=4).contains(&beyond.len()), "{beyond:?}");
    assert!(tuner.remembered().most.streams <= 20);
    assert!(tuner.remembered().setting.streams >= 16);
    // With the remembered ceiling, the tuner never exceeds the number that failed.
    let mut tuner = Tuner::recall(&BOUNDS, &tuner.remembered());
    let settings = run(&mut tuner, 600, line(64));
    assert!(settings.iter().all(|setting| setting.streams <= 20));
}

#[test]
fn streams_are_added_a_few_at_a_time() {
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    let mut last = 4;
    for setting in run(&mut tuner, 60, line(64)) {
        let most = last + (last / 6).max(2);
        assert!(setting.streams <= most, "{} after {last}", setting.streams);
        last = setting.streams;
    }
    assert!(last >= 56, "{last}");
}

#[test]
fn one_stream_that_breaks_where_all_went_well_changes_nothing() {
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    run(&mut tuner, 60, line(16));
    let before = tuner.remembered();
    let now = tuner.told(&refused(line(16)(tuner.setting()), 1));
    assert_eq!(tuner.remembered(), before);
    // Two errors within a short time reduce the number.
    for _ in 0..4 {
        tuner.told(&line(16)(now));
    }
    tuner.told(&refused(line(16)(now), 1));
    assert!(tuner.remembered().most.streams < now.streams);
    assert!(tuner.setting().streams < now.streams);
}

#[test]
fn a_changed_path_is_measured_again() {
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    run(&mut tuner, 60, line(6));
    assert!(tuner.remembered().setting.streams <= 8);
    let settings = run(&mut tuner, 60, |setting| {
        sample(6_000_000 * u64::from(setting.streams))
    });
    assert!(settings.iter().any(|setting| setting.streams >= 40));
}

#[test]
fn nothing_is_concluded_before_the_first_byte() {
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    let settings = run(&mut tuner, 30, |_| sample(0));
    assert!(settings.iter().all(|now| *now == setting(4)));
}

#[test]
fn the_tuner_remembers_the_best_setting_and_not_the_one_being_tried() {
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    let mut has_tried = false;
    let mut now = tuner.setting();
    for _ in 0..240 {
        now = tuner.told(&line(8)(now));
        let known = tuner.remembered().setting.streams;
        has_tried |= now.streams != known;
        assert!(known <= 2 * 8, "{known} on a line of 8, while {now:?}");
    }
    assert!(has_tried);
}

#[test]
fn dtl_follows_the_text_of_its_paper() {
    let five = |dtl: &mut Dtl, bytes| {
        (0..5)
            .map(|_| dtl.told(&sample(bytes)).streams)
            .last()
            .expect("five")
    };
    let mut dtl = Dtl::new(BOUNDS, dtl::START);
    assert_eq!(dtl.setting().streams, 8);
    for _ in 0..4 {
        assert_eq!(dtl.told(&sample(100)).streams, 8);
    }
    assert_eq!(dtl.told(&sample(100)).streams, 12);
    // If the throughput is above 1.3 times that of the last step, DTL adds threads. Between 0.7 and
    // 1.3 times, it keeps the number of threads.
    assert_eq!(five(&mut dtl, 131), 16);
    assert_eq!(five(&mut dtl, 170), 16);
    // If the throughput falls below 0.7 times the last one, DTL adds threads after a step without
    // an increase, and removes threads after an increase.
    assert_eq!(five(&mut dtl, 118), 20);
    assert_eq!(five(&mut dtl, 82), 16);
    assert_eq!(five(&mut dtl, 57), 20);
    assert_eq!(dtl.threads(), 20);
    assert_eq!(dtl.setting().writers, 20);
    // By Figure 3 of the paper the last three steps would be 12, 16, 12.
    let mut bounded = Dtl::new(BOUNDS, 64);
    assert_eq!(five(&mut bounded, 100), 64);
}

#[test]
fn a_result_needs_a_minimum_number_of_samples() {
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    run(&mut tuner, 5, line(16));
    assert_eq!(tuner.found(), None);
    // A failure at a higher number is a result immediately.
    tuner.told(&refused(line(16)(tuner.setting()), 9));
    tuner.told(&refused(line(16)(tuner.setting()), 9));
    assert!(tuner.found().is_some_and(|found| found.most.streams < 64));
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    run(&mut tuner, 30, line(16));
    assert_eq!(tuner.found(), Some(tuner.remembered()));
    // If only the number of streams may change and another stage is the bottleneck, no two numbers
    // are compared, so there is no result.
    let only = |streams| Setting {
        streams,
        ..setting(1)
    };
    let bounds = Bounds {
        least: only(2),
        most: only(64),
    };
    let mut tuner = Tuner::new(&bounds, only(4));
    run(&mut tuner, 60, |_| Sample {
        bottleneck: Some(Bottleneck::Write),
        ..sample(1_000_000)
    });
    assert_eq!(tuner.found(), None);
    // A transfer that is limited by a rate gives no result either.
    let mut tuner = Tuner::new(&BOUNDS, setting(4));
    run(&mut tuner, 60, |_| Sample {
        bottleneck: Some(Bottleneck::Other),
        ..sample(1_000_000)
    });
    assert_eq!(tuner.found(), None);
}

/// Returns the best number of streams, and the highest number that has not failed.
const fn streams(known: &Remembered) -> (u32, u32) {
    (known.setting.streams, known.most.streams)
}

#[test]
fn a_bound_of_one_transfer_is_not_remembered_of_the_pair() {
    let most = |streams| Bounds {
        most: setting(streams),
        ..BOUNDS
    };
    let mut tuner = Tuner::new(&most(8), setting(4));
    run(&mut tuner, 60, line(40));
    let known = tuner.remembered();
    assert_eq!(known.most, Setting::UNBOUNDED);
    assert_eq!(known.setting.streams, 8);
    let mut tuner = Tuner::recall(&BOUNDS, &known);
    assert_eq!(tuner.setting().streams, 8);
    run(&mut tuner, 60, line(40));
    let known = tuner.remembered();
    assert!(known.setting.streams >= 16, "{known:?}");
    // The next transfer may use at most eight streams. The result of eight streams does not refute
    // the larger number of the earlier transfer.
    let mut tuner = Tuner::recall(&most(8), &known);
    assert_eq!(tuner.setting().streams, 8);
    run(&mut tuner, 60, line(40));
    assert_eq!(streams(&tuner.remembered()), streams(&known));
    // A number that failed stays known. A bound that is lower than the number does not change this.
    let known = Remembered {
        setting: setting(12),
        most: setting(14),
    };
    let mut tuner = Tuner::recall(&most(8), &known);
    run(&mut tuner, 60, line(40));
    assert_eq!(streams(&tuner.remembered()), (12, 14));
    // A higher throughput with fewer streams is a new result.
    let mut tuner = Tuner::recall(&most(8), &known);
    run(&mut tuner, 60, |setting| {
        let streams = u64::from(setting.streams);
        sample(2_500_000 * streams.min(3) * 3 / streams.max(3))
    });
    let (held, most) = streams(&tuner.remembered());
    assert!(held < 8 && most == 14, "{held}, {most}");
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn day(number: u32) -> Time {
    Time::ZERO + 10_000 * DAY + number * DAY
}

fn pair(source: &str, sink: &str) -> Pair {
    Pair {
        source: source.to_owned(),
        sink: sink.to_owned(),
    }
}

fn known(streams: u32) -> Remembered {
    Remembered {
        setting: setting(streams),
        most: Setting::UNBOUNDED,
    }
}

#[test]
fn the_memory_keeps_pairs_apart_and_forgets_the_oldest() {
    let mut memory = Memory::new(2, 30 * DAY);
    memory.keep(pair("a", "b"), known(1), day(0));
    memory.keep(pair("b", "a"), known(2), day(0));
    memory.keep(pair("a", "b"), known(3), day(0));
    assert_eq!(memory.of(&pair("a", "b"), day(0)), Some(known(3)));
    assert_eq!(memory.of(&pair("b", "a"), day(0)), Some(known(2)));
    memory.keep(pair("a", "c"), known(4), day(0));
    assert_eq!(memory.of(&pair("b", "a"), day(0)), None);
    let mut again = Memory::new(2, 30 * DAY);
    for (pair, kept) in memory.entries() {
        again.restore(pair.clone(), *kept, day(1));
    }
    assert_eq!(again, memory);
}

#[test]
fn settings_and_failures_are_forgotten_after_thirty_days() {
    let mut memory = Memory::new(9, 30 * DAY);
    let failed = Remembered {
        most: setting(12),
        ..known(10)
    };
    memory.keep(pair("a", "b"), failed, day(0));
    memory.keep(pair("a", "c"), known(5), day(0));
    assert_eq!(memory.of(&pair("a", "b"), day(30)), Some(failed));
    assert_eq!(memory.of(&pair("a", "b"), day(31)), None);
    // A setting that is used every day stays known. A ceiling that was not tested again does not
    // renew the failure.
    memory.keep(pair("a", "b"), failed, day(20));
    assert_eq!(memory.of(&pair("a", "b"), day(30)), Some(failed));
    assert_eq!(memory.of(&pair("a", "b"), day(31)), Some(known(10)));
    // A failure at a lower number renews the time of the failure.
    let lower = Remembered {
        most: setting(11),
        ..known(10)
    };
    memory.keep(pair("a", "b"), lower, day(29));
    assert_eq!(memory.of(&pair("a", "b"), day(59)), Some(lower));
    assert_eq!(memory.entries().count(), 2);
    memory.keep(pair("x", "y"), known(1), day(40));
    assert_eq!(memory.entries().count(), 2, "a to c is gone");
    // A concurrent session does not renew the recorded failure if the session did not know of the
    // failure or has read the failure from the memory.
    memory.keep(pair("s", "t"), failed, day(40));
    memory.keep(pair("s", "t"), known(30), day(50));
    memory.keep(pair("s", "t"), failed, day(60));
    let of = |day| memory.of(&pair("s", "t"), day).map(|known| known.most);
    assert_eq!(of(day(70)), Some(setting(12)));
    assert_eq!(of(day(71)), Some(Setting::UNBOUNDED));
    // The clock was far ahead when this entry was stored.
    memory.keep(pair("a", "z"), known(7), day(4_000));
    assert_eq!(memory.of(&pair("a", "z"), day(40)), None);
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let bottleneck = prop_oneof![
        Just(None),
        Just(Some(Bottleneck::Read)),
        Just(Some(Bottleneck::Network)),
        Just(Some(Bottleneck::Write)),
        Just(Some(Bottleneck::Other)),
    ];
    let errors = prop_oneof![4 => Just(0u32), 1 => 0..4u32];
    (
        any::<u64>(),
        0..2_000u64,
        errors.clone(),
        errors.clone(),
        errors,
        bottleneck,
    )
        .prop_map(
            |(bytes, millis, streams, reads, writes, bottleneck)| Sample {
                bytes,
                took: Duration::from_millis(millis),
                errors: Errors {
                    streams,
                    reads,
                    writes,
                },
                bottleneck,
            },
        )
}

proptest! {
    #[test]
    fn whatever_happens_settings_lie_within_the_bounds(
        samples in prop::collection::vec(any_sample(), 1..100),
        least in 0..20u32,
        most in 0..80u32,
        start in 0..100u32,
    ) {
        let bounds = Bounds { least: setting(least), most: setting(most) };
        let mut tuner = Tuner::new(&bounds, setting(start));
        let mut again = Tuner::new(&bounds, setting(start));
        for sample in &samples {
            let now = tuner.told(sample);
            prop_assert_eq!(now, tuner.setting());
            prop_assert_eq!(now, again.told(sample));
            for knob in Knob::ALL {
                let (least, most) = bounds.of(knob);
                prop_assert!((least..=most).contains(&now.at(knob)));
                prop_assert!(now.at(knob) <= tuner.remembered().most.at(knob));
            }
        }
        let known = tuner.remembered();
        let recalled = Tuner::recall(&bounds, &known).setting();
        for knob in Knob::ALL {
            prop_assert!(recalled.at(knob) <= known.most.at(knob));
        }
    }
}
