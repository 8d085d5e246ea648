//! Applies random calls to an object log. Recovery must return the expected state after any number
//! of resumes and compactions.

mod common;

use common::medium::Medium;
use common::{ExpectedState, OBJECT, Op, apply, assert_equals, header, tenure};
use dray_core::options::Durability;
use dray_core::{LogForm, LogMechanism, LogMethod};
use dray_log::{Ending, Limits, MemoryFile, UniversalLog, recover, recover_within};
use proptest::prelude::*;
use std::num::NonZeroU32;

const NAMES: [&str; 4] = ["a", "run/b", "run/deep/c", "d"];

#[derive(Debug, Clone)]
enum Step {
    Begin(usize, u64, usize),
    Done(usize, usize, usize),
    Finish(usize, bool),
    Commit,
    Compact,
    Resume(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        3 => (0..4usize, 1..50u64, 0..200usize).prop_map(|(n, v, s)| Step::Begin(n, v, s)),
        10 => (0..4usize, 0..13usize, 1..4usize).prop_map(|(n, f, c)| Step::Done(n, f, c)),
        2 => (0..4usize, any::<bool>()).prop_map(|(n, p)| Step::Finish(n, p)),
        3 => Just(Step::Commit),
        1 => Just(Step::Compact),
        1 => any::<bool>().prop_map(Step::Resume),
    ];
    prop::collection::vec(one, 0..80)
}

fn forms() -> impl Strategy<Value = LogForm> {
    let two = LogMechanism::Transaction(NonZeroU32::MIN.saturating_add(1));
    let mechanisms = [LogMechanism::File, two, LogMechanism::Universal];
    (
        prop::sample::select(mechanisms.to_vec()),
        prop::sample::select(LogMethod::ALL.to_vec()),
        any::<bool>(),
    )
        .prop_map(|(mechanism, method, has_sums)| match has_sums {
            true => LogForm::new(mechanism, method),
            false => LogForm::new(mechanism, method).without_sums(),
        })
}

/// Returns the call for a step in this state; `None` if the state does not permit the step.
fn op(step: &Step, truth: &ExpectedState) -> Option<Op> {
    match *step {
        Step::Begin(index, version, size) => {
            let name = NAMES[index];
            (!truth.contains_key(name)).then_some(Op::Begin {
                name,
                version,
                size,
            })
        }
        Step::Done(index, first, count) => {
            let name = NAMES[index];
            let (_, size, done) = truth.get(name)?;
            let start = first * OBJECT as usize;
            let end = (start + count * OBJECT as usize).min(*size);
            let is_new = start < end && !done[start..end].contains(&true);
            is_new.then_some(Op::Done {
                name,
                start: start as u64,
                end: end as u64,
            })
        }
        Step::Finish(index, published) => {
            let name = NAMES[index];
            let ending = if published {
                Ending::Published
            } else {
                Ending::Dropped
            };
            truth
                .contains_key(name)
                .then_some(Op::Finish { name, ending })
        }
        Step::Commit => Some(Op::Commit),
        Step::Compact => Some(Op::Compact),
        Step::Resume(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn recovery_equals_the_model(
        steps in steps(),
        is_synced in any::<bool>(),
        form in forms(),
    ) {
        let durability = if is_synced { Durability::File } else { Durability::None };
        let (mut epoch, mut boot) = (1, 1);
        let first = header(tenure(epoch, boot, durability)).of_form(form);
        let mut log = UniversalLog::create(Medium::new(), first).expect("memory");
        let mut truth = ExpectedState::new();
        let mut committed = ExpectedState::new();
        for step in &steps {
            if let Step::Resume(new_boot) = step {
                let mut file = log.into_file();
                let found = recover(&mut file).expect("whole").expect("made");
                prop_assert!(found.damage.is_none() && found.torn_bytes == 0);
                assert_equals(&found, &committed, "at a resume");
                epoch += 1;
                if *new_boot {
                    boot += 1;
                    if !is_synced || !form.has_sums {
                        committed.values_mut().for_each(|(_, _, done)| done.fill(false));
                    }
                }
                log = UniversalLog::resume(file, found, tenure(epoch, boot, durability))
                    .expect("memory");
                truth.clone_from(&committed);
                continue;
            }
            let Some(op) = op(step, &truth) else { continue };
            if let Op::Begin { name, .. } = &op
                && committed.contains_key(name)
            {
                // The previous file at this path has ended, but the record of its end is not
                // committed. So the log must reject a new file at this path.
                prop_assert!(apply(&mut log, &mut truth, &op).is_err());
                apply(&mut log, &mut truth, &Op::Commit).expect("memory");
                committed.clone_from(&truth);
                apply(&mut log, &mut truth, &op).expect("now it may");
                continue;
            }
            match apply(&mut log, &mut truth, &op) {
                Ok(()) => {}
                Err(error) => {
                    // The file began and ended within the same group.
                    prop_assert!(error.cause.contains("not committed"), "{error}");
                    apply(&mut log, &mut truth, &Op::Commit).expect("memory");
                    apply(&mut log, &mut truth, &op).expect("now it may");
                    let begun = truth.clone();
                    committed = begun;
                    if let Op::Begin { name, .. } = op {
                        committed.remove(name);
                    }
                    continue;
                }
            }
            if matches!(op, Op::Commit | Op::Compact) {
                committed.clone_from(&truth);
            }
        }
        let found = recover(&mut log.into_file()).expect("whole").expect("made");
        assert_equals(&found, &committed, "at the end");
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = recover(&mut MemoryFile::with_bytes(bytes));
    }
}

#[test]
fn limits_drop_ranges_and_never_add_any() {
    let first = header(tenure(1, 1, Durability::File));
    let mut log = UniversalLog::create(MemoryFile::new(), first).expect("memory");
    let mut truth = ExpectedState::new();
    for op in common::workload() {
        apply(&mut log, &mut truth, &op).expect("memory");
    }
    let mut file = log.into_file();
    let all = recover(&mut file).expect("whole").expect("made");
    for files_max in 0..3 {
        for runs_max in 0..4 {
            let limits = Limits {
                files_max,
                runs_max,
            };
            let found = recover_within(&mut file, limits)
                .expect("whole")
                .expect("made");
            assert!(found.files.len() <= files_max);
            let runs: usize = found.files.values().map(|f| f.done.run_count()).sum();
            assert!(runs <= runs_max, "{runs} runs of {runs_max}");
            let is_less = found != all;
            assert!(!is_less || found.over_limit > 0);
            for (path, file) in &found.files {
                for (range, _) in file.done.iter() {
                    assert!(all.files[path].done.contains(range));
                }
            }
        }
    }
}
