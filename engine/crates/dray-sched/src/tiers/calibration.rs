//! Bandwidths of a tier from a measurement: selects the read rates at which the write bandwidth is
//! measured, and fits a line to the samples (BBOS, section 5.1.2, equation 5.1).
//!
//! Non-goals: reading and writing. `dray_runtime::calibrate` takes the samples.

use super::device::{DeviceModel, ModelError, Sample};

/// Read rates as fractions of the fastest reads. A measurement samples the write bandwidth beside
/// reads at each of these rates, beside the fastest reads, and without reads.
pub const READ_PARTS: [f64; 4] = [0.75, 0.5, 0.25, 0.05];

/// Returns the read rates in bytes per second to measure beside writes, fastest first. `read_max`
/// is the rate of the fastest reads.
pub fn read_rates(read_max: f64) -> impl Iterator<Item = f64> {
    READ_PARTS.into_iter().map(move |part| part * read_max)
}

/// Fits the line of equation 5.1 of BBOS to the samples of a measurement. The fit includes samples
/// without reads. But the lower end of the line (Brmin, Bwmax) is at the slowest measured read rate
/// above zero, because a demotion at rate zero would never end.
///
/// # Errors
/// The errors of [`DeviceModel::fit`].
pub fn model(samples: &[Sample]) -> Result<DeviceModel, ModelError> {
    let line = DeviceModel::fit(samples)?;
    let reads = samples.iter().map(|sample| sample.read);
    let slowest = reads
        .filter(|read| *read > 0.0)
        .fold(line.read_max, f64::min);
    DeviceModel::new(
        line.write_beside(slowest),
        line.write_min,
        line.read_max,
        slowest,
    )
}

/// Returns the largest difference between a measured write bandwidth and the line, as a part of the
/// line's value: 0.1 means that a sample is 10 % above or below the line.
#[must_use]
pub fn deviation(model: &DeviceModel, samples: &[Sample]) -> f64 {
    let parts = samples.iter().map(|sample| {
        let line = model.write_beside(sample.read);
        (sample.write - line).abs() / line
    });
    parts.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::{deviation, model, read_rates};
    use crate::tiers::device::{ModelError, Sample};

    const MIB: f64 = 1_048_576.0;

    fn samples(pairs: &[(f64, f64)]) -> Vec<Sample> {
        let sample = |&(read, write): &(f64, f64)| Sample {
            read: read * MIB,
            write: write * MIB,
        };
        pairs.iter().map(sample).collect()
    }

    /// Read and write bandwidths in MiB/s, measured in two rounds on a loop device that was limited
    /// to 60 MiB/s of reads and writes together. Its data was demoted to a slow device of 40 MiB/s.
    const RECORDED: [(f64, f64); 6] = [
        (0.0, 60.0),
        (39.0, 22.0),
        (30.0, 29.5),
        (20.0, 41.0),
        (10.0, 49.0),
        (2.0, 58.5),
    ];

    #[test]
    fn the_ends_of_the_line_are_the_slowest_and_the_fastest_read() {
        let samples = samples(&RECORDED);
        let model = model(&samples).expect("falling");
        assert_eq!(model.read_min, 2.0 * MIB);
        assert_eq!(model.read_max, 39.0 * MIB);
        // The line of least squares, computed by hand: 59.92 - 0.9852 read.
        assert!((model.write_max / MIB - 57.95).abs() < 0.1, "{model:?}");
        assert!((model.write_min / MIB - 21.5).abs() < 0.1, "{model:?}");
        let off = deviation(&model, &samples);
        assert!((0.02..0.06).contains(&off), "{off}");
    }

    #[test]
    fn samples_that_do_not_fall_have_no_model() {
        let flat = samples(&[(0.0, 50.0), (10.0, 50.0), (20.0, 51.0)]);
        let error = model(&flat).expect_err("rising");
        assert!(matches!(error, ModelError::NotFalling { .. }), "{error}");
        let one = samples(&[(0.0, 50.0), (0.0, 49.0)]);
        let error = model(&one).expect_err("one read rate");
        assert_eq!(error, ModelError::TooFewSamples { samples: 2 });
    }

    #[test]
    fn a_steep_line_keeps_the_minimum_of_writes_positive() {
        // Writes stop beside the fastest reads: such a device cannot be a tier.
        let steep = samples(&[(0.0, 50.0), (10.0, 20.0), (20.0, 0.0), (30.0, 0.0)]);
        assert!(model(&steep).is_err());
    }

    #[test]
    fn read_rates_fall_from_the_fastest() {
        let rates: Vec<f64> = read_rates(200.0).collect();
        assert_eq!(rates, [150.0, 100.0, 50.0, 10.0]);
    }
}
