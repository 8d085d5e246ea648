use super::{BYTES_MIN, Measurement, Pace, Step};
use dray_core::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

fn measurement(fast: &Path, slow: &Path) -> Measurement {
    Measurement {
        fast: fast.to_owned(),
        slow: slow.to_owned(),
        bytes: BYTES_MIN,
        duration: Duration::from_millis(150),
        rounds: 1,
    }
}

#[test]
fn a_measurement_takes_all_samples_and_leaves_no_file() {
    let folder = tempfile::tempdir().expect("folder");
    let measurement = measurement(folder.path(), folder.path());
    let mut steps = Vec::new();
    let stop = AtomicBool::new(false);
    let measured = measurement
        .run(&stop, &mut |step| steps.push(step))
        .expect("measured");
    assert_eq!(steps.len() as u64, measurement.steps());
    assert_eq!(steps[..2], [Step::SlowWrites, Step::Prepare]);
    assert_eq!(measured.samples.len(), 6);
    assert_eq!(measured.samples[0].read, 0.0);
    assert!(measured.slow_write > 0.0 && measured.is_one_file_system);
    for (sample, step) in measured.samples.iter().zip(&steps[2..]) {
        assert!(sample.write > 0.0, "{measured:?}");
        let Step::Beside(rate) = step else {
            panic!("{steps:?}")
        };
        // The first read takes place at the beginning of the sample, so a short sample reads at
        // more than the rate.
        assert!(sample.read <= rate * 2.0 + 1e6, "{measured:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
}

#[test]
fn a_missing_folder_and_a_lack_of_space_are_named() {
    let folder = tempfile::tempdir().expect("folder");
    let stop = AtomicBool::new(false);
    let missing = measurement(folder.path(), &PathBuf::from("/nowhere/at/all"));
    let error = missing.run(&stop, &mut |_| {}).expect_err("missing");
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    let large = Measurement {
        bytes: 1 << 60,
        ..measurement(folder.path(), folder.path())
    };
    let error = large.run(&stop, &mut |_| {}).expect_err("too large");
    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
    let file = folder.path().join("file");
    std::fs::write(&file, b"").expect("write");
    let no_folder = measurement(&file, folder.path());
    let error = no_folder.run(&stop, &mut |_| {}).expect_err("a file");
    assert_eq!(error.kind, ErrorKind::NotADirectory, "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1);
}

#[test]
fn an_interruption_ends_the_measurement() {
    let folder = tempfile::tempdir().expect("folder");
    let stop = AtomicBool::new(false);
    let long = Measurement {
        duration: Duration::from_secs(60),
        ..measurement(folder.path(), folder.path())
    };
    let begun = Instant::now();
    let error = std::thread::scope(|scope| {
        let run = scope.spawn(|| long.run(&stop, &mut |_| {}));
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        run.join().expect("thread").expect_err("interrupted")
    });
    assert_eq!(error.kind, ErrorKind::Cancelled, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
}

#[test]
fn reads_are_paced() {
    let begun = Instant::now();
    let rate = 4e6;
    let pace = Pace::new(rate, begun);
    let end = begun + Duration::from_millis(500);
    let stop = AtomicBool::new(false);
    let mut bytes = 0;
    while let Some(block) = pace.wait(end, &stop) {
        bytes += block;
    }
    let wanted = rate / 2.0;
    let error = (bytes as f64 - wanted).abs();
    assert!(error <= pace.block() as f64, "{bytes} bytes of {wanted}");
}
