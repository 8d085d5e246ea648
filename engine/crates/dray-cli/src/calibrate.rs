//! `dray tier calibrate`: measures the devices of a tier, and prints the keys of its configuration.

use crate::args::Calibrate;
use crate::exit::{Exit, Stop};
use crate::units::human;
use crate::{output, signals};
use dray_core::{End, Error, ErrorKind, Result};
use dray_open::locations::own_path;
use dray_runtime::calibrate::{Measured, Measurement, Step};
use dray_sched::tiers::calibration::{deviation, model};
use dray_sched::tiers::device::{DeviceModel, ModelError, Sample};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum relative difference between a sample and the fitted line of the write rate over the read
/// rate. Above this value, a note asks the user to measure again.
const DEVIATION_MAX: f64 = 0.2;

/// Runs `dray tier calibrate`.
pub(crate) fn run(calibrate: &Calibrate) -> std::result::Result<Exit, Stop> {
    let path = |typed: &OsStr| Ok::<_, Error>(PathBuf::from(&*own_path(typed)?));
    let measurement = Measurement {
        fast: path(calibrate.fast.as_os_str())?,
        slow: path(calibrate.slow.as_os_str())?,
        bytes: calibrate.size,
        duration: calibrate.time,
        rounds: calibrate.rounds,
    };
    signals::watch("stopping; the files of the measurement are already deleted")?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    signals::on_stop(move || stopped.store(true, Ordering::Relaxed));
    let measured = take(&measurement, &stop);
    if stop.load(Ordering::Relaxed) {
        return Ok(Exit::Interrupted);
    }
    let measured = measured?;
    if measured.is_one_file_system {
        output::note(
            "note: both folders are on one file system, so demotions read and write one device",
        );
    }
    let model = model(&measured.samples).map_err(|error| no_model(&error, &measured.samples));
    match calibrate.json {
        true => {
            let model = model?;
            output::result(&in_json(&measured, &model).to_string());
            note_deviation(&model, &measured.samples);
        }
        false => {
            lines(&measured)
                .iter()
                .for_each(|line| output::result(line));
            let model = model?;
            for (key, value) in keys(&model) {
                output::result(&format!("{key} = \"{}\"", rate(value)));
            }
            note_deviation(&model, &measured.samples);
        }
    }
    Ok(Exit::Safe)
}

/// Measures. Shows a progress bar if standard error is a terminal.
fn take(measurement: &Measurement, stop: &AtomicBool) -> Result<Measured> {
    let bar = std::io::stderr().is_terminal().then(|| {
        let target = ProgressDrawTarget::stderr();
        let bar = ProgressBar::with_draw_target(Some(measurement.steps()), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {elapsed} {msg}") {
            bar.set_style(style);
        }
        output::set_bar(Some(bar.clone()));
        bar
    });
    let mut done = 0;
    let measured = measurement.run(stop, &mut |step| {
        if let Some(bar) = &bar {
            bar.set_position(done);
            bar.set_message(words(step));
        }
        done += 1;
    });
    output::set_bar(None);
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    measured
}

fn words(step: Step) -> String {
    match step {
        Step::SlowWrites => "writing to the slow device".to_owned(),
        Step::Prepare => "writing the files that the measurement will read".to_owned(),
        Step::Beside(0.0) => "writing to the fast device".to_owned(),
        Step::Beside(rate) => format!(
            "writing to the fast device and reading {}/s from it",
            human(whole(rate))
        ),
    }
}

fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

/// Returns the error for samples that no falling line (write rate over read rate) fits.
fn no_model(error: &ModelError, samples: &[Sample]) -> Error {
    let reads = samples.iter().map(|sample| sample.read);
    let reads = reads.filter(|read| *read > 0.0);
    let fastest = reads.clone().fold(0.0, f64::max);
    let slowest = reads.fold(fastest, f64::min);
    let write = samples.iter().map(|sample| sample.write).sum::<f64>() / samples.len() as f64;
    let remedy = match error {
        ModelError::TooFewSamples { .. } => {
            "use a longer --time: no data was read during the writes".to_owned()
        }
        _ => format!(
            "measure again while nothing else uses the devices, with a longer --time or more \
                --rounds. If the error remains, set write_max and write_min to \
                \"{}\", read_max to \"{}\" and read_min to \"{}\"",
            rate(write),
            rate(fastest),
            rate(slowest)
        ),
    };
    let operation = "compute the bandwidths of the tier from the measurement";
    Error::new(ErrorKind::Unsupported, End::Here, operation)
        .cause(error.to_string())
        .remedy(remedy)
}

fn note_deviation(model: &DeviceModel, samples: &[Sample]) {
    let off = deviation(model, samples);
    if off > DEVIATION_MAX {
        let percent = whole(off * 100.0);
        output::note(&format!(
            "note: one of the measured write rates differs by {percent} % from the rate that the \
                printed keys predict; measure again while nothing else uses the devices, with a \
                longer --time or more --rounds"
        ));
    }
}

/// Returns the measured rates as comments of the configuration.
fn lines(measured: &Measured) -> Vec<String> {
    let how = |is_direct| match is_direct {
        true => "direct I/O",
        false => "synced, without direct I/O",
    };
    let mut lines = vec![
        format!(
            "# slow device ({}): {}/s written",
            how(measured.slow_is_direct),
            human(whole(measured.slow_write))
        ),
        format!(
            "# fast device ({}), written during reads:",
            how(measured.fast_is_direct)
        ),
    ];
    lines.extend(measured.samples.iter().map(|sample| {
        format!(
            "#   {}/s written, {}/s read",
            human(whole(sample.write)),
            human(whole(sample.read))
        )
    }));
    lines
}

const fn keys(model: &DeviceModel) -> [(&'static str, f64); 4] {
    [
        ("write_max", model.write_max),
        ("write_min", model.write_min),
        ("read_max", model.read_max),
        ("read_min", model.read_min),
    ]
}

/// Returns a rate in the form of the configuration, rounded down.
fn rate(bytes: f64) -> String {
    const KIB: u64 = 1 << 10;
    match whole(bytes) {
        bytes if bytes >= 100 << 20 => format!("{}MiB/s", bytes >> 20),
        bytes if bytes >= KIB => format!("{}KiB/s", bytes >> 10),
        bytes => format!("{}B/s", bytes.max(1)),
    }
}

fn in_json(measured: &Measured, model: &DeviceModel) -> serde_json::Value {
    let samples = measured.samples.iter().map(|sample| {
        json!({
            "write": whole(sample.write),
            "read": whole(sample.read),
        })
    });
    json!({
        "write_max": whole(model.write_max),
        "write_min": whole(model.write_min),
        "read_max": whole(model.read_max),
        "read_min": whole(model.read_min).max(1),
        "slow_write": whole(measured.slow_write),
        "samples": samples.collect::<Vec<_>>(),
        "deviation": deviation(model, &measured.samples),
        "fast_is_direct": measured.fast_is_direct,
        "slow_is_direct": measured.slow_is_direct,
        "is_one_file_system": measured.is_one_file_system,
    })
}

#[cfg(test)]
mod tests {
    use super::{keys, lines, rate};
    use dray_core::units;
    use dray_runtime::calibrate::Measured;
    use dray_sched::tiers::calibration::model;
    use dray_sched::tiers::device::Sample;

    #[test]
    fn keys_are_rates_of_the_configuration() {
        for (bytes, text) in [
            (0.5, "1B/s"),
            (2048.0, "2KiB/s"),
            (99.5 * 1_048_576.0, "101888KiB/s"),
            (3.2e9, "3051MiB/s"),
        ] {
            assert_eq!(rate(bytes), text);
            assert!(units::rate(text).is_ok_and(|read| read as f64 <= bytes.max(1.0)));
        }
        let samples = [(0.0, 60e6), (40e6, 20e6), (2e6, 58e6)];
        let samples = samples.map(|(read, write)| Sample { read, write });
        let model = model(&samples).expect("falling");
        let names = keys(&model).map(|(name, _)| name);
        assert_eq!(names, ["write_max", "write_min", "read_max", "read_min"]);
        let measured = Measured {
            slow_write: 40e6,
            samples: samples.to_vec(),
            fast_is_direct: true,
            slow_is_direct: false,
            is_one_file_system: false,
        };
        let lines = lines(&measured);
        assert!(lines.iter().all(|line| line.starts_with('#')), "{lines:?}");
        assert_eq!(lines[2], "#   57.2 MiB/s written, 0 B/s read");
        assert_eq!(lines.len(), 5);
    }
}
